"""The port that a test keeps for its servers: they may come and go, and nobody else has it meanwhile."""

from __future__ import annotations

import socket

import pytest
from ports import HeldPort

IN_USE = "Address already in use"


def test_only_a_server_that_asks_for_the_port_listens_there() -> None:
    with HeldPort() as port:
        at = ("127.0.0.1", port.number)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(at)
            with socket.create_server(at) as server, socket.create_connection(at) as client:
                accepted, _ = server.accept()
                accepted.close()
                assert client.recv(1) == b""
                with pytest.raises(OSError, match=IN_USE):
                    socket.create_server(at)


def test_a_port_that_is_held_is_given_to_nobody() -> None:
    with HeldPort() as port, socket.socket() as other:
        with pytest.raises(OSError, match=IN_USE):
            other.bind(("127.0.0.1", port.number))  # without `SO_REUSEADDR`
        others = [HeldPort() for _ in range(200)]
        assert len({port.number, *(each.number for each in others)}) == 201
        for each in others:
            each.close()
