"""What the errors of PostgreSQL mean to a store: a connection that is lost, a write to be done again, or words for the caller."""

from __future__ import annotations

from typing import Final, TypeAlias

import psycopg

Connection: TypeAlias = psycopg.Connection[object]
"""A connection, whatever rows it gives by itself: each cursor here is told which it is to give."""
AnyConnection: TypeAlias = Connection | psycopg.AsyncConnection[object]

# Class 08 is the connection itself, 57P the server that stops or ends sessions, 25P03 and 25P04 a transaction that
# stood still for too long.
LOST: Final = ("08", "57P", "25P03", "25P04")
"""How the codes of errors begin that end a connection."""
# A serialization failure or a deadlock: the server has undone one of two transactions so that the other can go on. To
# do it again is what it expects.
AGAIN: Final = ("40001", "40P01")
"""The codes of errors of transactions that were in each other's way: nothing of them was written."""
# Another release changed the type of a column while this one had a plan for it.
STALE: Final = "0A000"
"""The code of the error for a prepared statement whose plan is of tables as they were."""
UNPREPARED: Final = ("26000", "42P05")
"""The codes of errors for prepared statements that a session does not have, or has of somebody else."""
# By code, as the server writes its messages in its own language.
WORDS: Final = {
    **dict.fromkeys(
        UNPREPARED,
        "a pooler is in between that does not keep prepared statements: open the store without `prepare_statements`",
    ),
    "23505": "an id is in the store already, nothing was written",
    "3F000": "there is no such schema",
    "42501": "the database user lacks a right that the store needs",
    "42P01": "a table of the store is missing: run `setup()`, or the SQL that `PostgresStore.setup_sql()` gives",
    "54000": "a text is too long for an index, nothing was written",
    "55P03": "another transaction kept a row locked for as long as the store's timeout, nothing was written",
    "25006": "the server takes no writes: it is a standby, or set to read only",
}
"""The words for an error of this code. The server's own words quote values."""


ENCODING: Final = "utf8"
"""The encoding in which our connections carry text, whatever that of the database is: it would be the default."""

# Of a connection that was not made there is no code, only words. What they quote is left out: these begin or name the kind of the
# error alone. Of a server that speaks another language they are not found, and all reasons are given.
_REFUSALS: Final = {
    "too many connections": "the server has no connection left for this user or database: raise the limit, or have smaller pools",
    "too many clients": "the server has no connection left: raise max_connections, or have smaller pools",
    "remaining connection slots": "the server has no connection left: raise max_connections, or have smaller pools",
    "unsupported startup parameter": "a pooler in between refuses a parameter of the connection: have it ignore the parameter",
    "password authentication failed": "the server refuses the user or the password",
    "no password supplied": "the server wants a password",
    "no pg_hba.conf entry": "the server lets this user in from no such address, or only with TLS: see its pg_hba.conf",
    "Connection refused": "nothing listens at the address: the server is down, or the port is another one",
    "No such file or directory": "nothing listens at the address: the server is down, or its socket is elsewhere",
    "timeout expired": "the server did not answer in time",
    "could not translate host name": "the name of the host is not known",
    "Name or service not known": "the name of the host is not known",
    "is starting up": "the server is starting up: try again",
    "is shutting down": "the server is shutting down",
}


def unconnected(error: psycopg.Error) -> str:
    """Why a connection was not made, in our words."""
    said = str(error)
    why = next((words for sign, words in _REFUSALS.items() if sign in said), None)
    return why or "the server is down, or refuses the address, the user, the password or the database"


def is_lost(connection: AnyConnection, error: psycopg.Error) -> bool:
    """Whether the connection ended with this error."""
    if connection.closed or (error.sqlstate or "").startswith(LOST):
        return True
    # The server ends a session with its last word: whatever the code, after FATAL there is no more answer.
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def is_unstorable(error: psycopg.Error) -> bool:
    """Whether the driver refused a value: it is the one thing that it looks at itself."""
    return isinstance(error, psycopg.DataError) and error.sqlstate is None
