"""Starts a server of `mcp_server.py` without waiting for its imports: a process that has done them forks, and serves at the other ends.

`python mcp_start.py SOCKET ARGUMENTS...` lives as long as the server does, and takes it along when it is killed.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as to:
    to.connect(sys.argv[1])
    told = {"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}
    socket.send_fds(to, [json.dumps(told).encode()], [0, 1, 2])
    null = os.open(os.devnull, os.O_RDWR)
    for mine in (0, 1, 2):
        os.dup2(null, mine)
    to.recv(1)
