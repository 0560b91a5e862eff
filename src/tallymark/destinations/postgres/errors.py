"""What PostgreSQL's errors mean to the user. No secret is in what is said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from tallymark.errors import DestinationError, RowsRefused, TableBusy, TableMoved, TallymarkError
from tallymark.model.section import redact

if TYPE_CHECKING:
    import psycopg


class PostgresPlace(Protocol):
    @property
    def place(self) -> str: ...

    @property
    def busy_seconds(self) -> float: ...


_BUSY = {"55P03"}  # lock_timeout
# Two loads met: serialization failure, deadlock, table or schema made at the same time.
_MOVED = {"40001", "40P01", "42P07", "42P06", "42701"}

# Start of the code → what it means, what to do.
_CODES = (
    ("28", "refuses user or password", "check user and password in the destination's `url`"),
    ("3D", "has no such database", "create it, or correct the destination's `url`"),
    ("42501", "lets this user not do this", "grant the user what is missing"),
    ("25006", "is read-only", "use the address of the primary server"),
    ("53100", "has no space left", "free some space on the server, then run again"),
    ("2BP01", "refuses, since something else depends on the column", "drop the view or rule that uses it"),
    ("0A", "cannot do this", "change what the message names"),
    ("57", "was stopped or is starting", "run again"),
)
# Before the server gives codes, only its words tell.
_WORDS = (
    ("password authentication failed", *_CODES[0][1:]),
    ("no password supplied", "asks for a password", "write postgresql://user:${PGPASSWORD}@host/database"),
    ("no pg_hba.conf entry", "does not let this user in from here", "ask its administrator for access"),
    ("does not exist", "has no such database or user", "create it, or correct the destination's `url`"),
    ("resolve host", "cannot be found by its host name", "check the host in the destination's `url`"),
    ("Name or service not known", "cannot be found by its host name", "check the host in the `url`"),
    (
        "invalid connection option",
        "is not given by a PostgreSQL URL",
        "write postgresql://user@host/database",
    ),
    ('missing "="', "is not given by a PostgreSQL URL", "write postgresql://user@host/database"),
)
_UNREACHABLE = ("cannot be reached", "check that the server runs and the destination's `url`, then run again")


def refusal(error: psycopg.Error, engine: PostgresPlace) -> TallymarkError:
    import psycopg

    code = error.sqlstate or ""
    text = redact(" ".join(str(error).split()))
    if code in _BUSY:
        return TableBusy(
            f"{engine.place}: another writer holds the table, for more than {engine.busy_seconds:g} seconds",
            hint="run again when it is done",
        )
    if code in _MOVED or (code == "23505" and "pg_" in str(error.diag.constraint_name)):
        return TableMoved(f"{engine.place}: another load was faster ({text}); nothing was written")
    if code.startswith("23"):
        return RowsRefused.by_constraint(engine.place, text)
    for start, meaning, hint in _CODES:
        if code.startswith(start):
            return DestinationError(f"{engine.place}: {meaning} ({text})", hint=hint)
    if not code:
        for part, meaning, hint in _WORDS:
            if part in text:
                return DestinationError(f"{engine.place}: {meaning} ({text})", hint=hint)
        if isinstance(error, psycopg.OperationalError):
            meaning, hint = _UNREACHABLE
            return DestinationError(f"{engine.place}: {meaning} ({text})", hint=hint)
    return DestinationError(f"{engine.place}: PostgreSQL refuses: {text}")


def copy_refusal(error: psycopg.Error, engine: PostgresPlace) -> TallymarkError:
    """While rows come in, the server says in which column it was."""
    context = str(error.diag.context or "")
    column = re.search(r", column (.+?)(?:: |$)", context)
    if not (error.sqlstate or "").startswith("22") or column is None:
        return refusal(error, engine)
    return RowsRefused(
        f"column {column[1]}: a value does not fit the table: {redact(str(error.diag.message_primary))}",
        hint=f"give {column[1]} a rule in `columns`, so that such values become bad rows",
        facts={"column": column[1]},
    )
