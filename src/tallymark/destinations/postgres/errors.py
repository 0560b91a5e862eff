"""What PostgreSQL's errors mean to the user. The messages contain no secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tallymark.errors import DestinationError, RowsRefused, TableBusy, TableMoved, TallymarkError
from tallymark.model.section import redact

if TYPE_CHECKING:
    import psycopg


_BUSY = {"55P03"}  # lock_timeout
# Two loads collided: serialization failure, deadlock, table or schema created at the same time.
_MOVED = {"40001", "40P01", "42P07", "42P06", "42701"}

# Prefix of the SQLSTATE, what it means, what to do.
_CODES = (
    ("28", "rejects the user or the password", "check user and password in the destination's `url`"),
    ("3D", "has no such database", "create it, or correct the destination's `url`"),
    ("42501", "does not permit this user to do this", "grant the missing permission to the user"),
    ("25006", "is read-only", "use the address of the primary server"),
    ("53100", "has no space left", "free some space on the server, then run again"),
    ("2BP01", "cannot change the column: something else depends on it", "drop the view or rule that uses it"),
    ("0A", "does not support this", "see the message of the server"),
    ("57", "is shutting down or starting up", "run again"),
)
# Without a SQLSTATE, before the connection is established, only the text tells.
_WORDS = (
    ("password authentication failed", *_CODES[0][1:]),
    ("no password supplied", "asks for a password", "write postgresql://user:${PGPASSWORD}@host/database"),
    ("no pg_hba.conf entry", "does not accept this user from this host", "ask its administrator for access"),
    ("does not exist", "has no such database or user", "create it, or correct the destination's `url`"),
    ("resolve host", "has a host name that cannot be resolved", "check the host in the destination's `url`"),
    ("Name or service not known", "has a host name that cannot be resolved", "check the host in the `url`"),
    (
        "invalid connection option",
        "is not a PostgreSQL URL",
        "write postgresql://user@host/database",
    ),
    ('missing "="', "is not a PostgreSQL URL", "write postgresql://user@host/database"),
)
_UNREACHABLE = (
    "cannot be reached",
    "check that the server is running and that the destination's `url` is right, then run again",
)


def refusal(error: psycopg.Error, database: str, busy_seconds: float) -> TallymarkError:
    import psycopg

    code = error.sqlstate or ""
    text = redact(" ".join(str(error).split()))
    if code in _BUSY:
        return TableBusy(
            f"{database}: another writer has locked the table for more than {busy_seconds:g} seconds",
            hint="run again when it has finished",
        )
    if code in _MOVED or (code == "23505" and "pg_" in str(error.diag.constraint_name)):
        return TableMoved(f"{database}: another load committed first ({text}); nothing was written")
    if code.startswith("23"):
        return RowsRefused.by_constraint(database, text)
    for start, meaning, hint in _CODES:
        if code.startswith(start):
            return DestinationError(f"{database}: {meaning} ({text})", hint=hint)
    if not code:
        for part, meaning, hint in _WORDS:
            if part in text:
                return DestinationError(f"{database}: {meaning} ({text})", hint=hint)
        if isinstance(error, psycopg.OperationalError):
            meaning, hint = _UNREACHABLE
            return DestinationError(f"{database}: {meaning} ({text})", hint=hint)
    return DestinationError(f"{database}: PostgreSQL reports: {text}")


def copy_refusal(error: psycopg.Error, database: str, busy_seconds: float) -> TallymarkError:
    """During COPY, the server names the column."""
    context = str(error.diag.context or "")
    column = re.search(r", column (.+?)(?:: |$)", context)
    if not (error.sqlstate or "").startswith("22") or column is None:
        return refusal(error, database, busy_seconds)
    return RowsRefused(
        f"column {column[1]}: a value does not fit the table: {redact(str(error.diag.message_primary))}",
        hint=f"give {column[1]} a rule in `columns`, so that such rows are quarantined",
        facts={"column": column[1]},
    )
