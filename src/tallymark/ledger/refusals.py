"""What the drivers' errors mean to the user. No driver's exception leaves the ledger raw."""

from __future__ import annotations

import sqlalchemy as sa

from tallymark.errors import LedgerError
from tallymark.ledger.address import Address

_REBUILD = "move the file away and run again: the records are rebuilt from the markers in the tables"
_RACES = {"23505", "40001", "40P01"}  # unique violation, serialization failure, deadlock

# Result code of SQLite (or the start of it) → what it means, what to do.
_SQLITE: tuple[tuple[str, str, str], ...] = (
    ("SQLITE_NOTADB", "is not a SQLite database", _REBUILD),
    ("SQLITE_CORRUPT", "is damaged", _REBUILD),
    (
        "SQLITE_CANTOPEN",
        "cannot be opened",
        "check that its folder exists and that this user may write there",
    ),
    (
        "SQLITE_READONLY",
        "is read-only",
        "let this user write the file and its folder, or set another `ledger:`",
    ),
    ("SQLITE_BUSY", "is locked by another process", "wait until that process is done, then run again"),
    ("SQLITE_FULL", "cannot grow: the disk is full", "free some space on its disk, then run again"),
    ("SQLITE_IOERR", "cannot be read or written", "check its disk, then run again"),
)

# Part of the message of libpq or the server → what it means, what to do.
_POSTGRES: tuple[tuple[str, str, str], ...] = (
    ("password authentication failed", "refuses the password", "check user and password in `ledger:`"),
    ("no password supplied", "asks for a password", "write postgresql://user:${PGPASSWORD}@host/database"),
    ("no pg_hba.conf entry", "does not let this user in from here", "ask its administrator for access"),
    (
        "permission denied",
        "lets this user in, but not create or write tables",
        "grant it CREATE on the schema",
    ),
    ("read-only transaction", "is read-only", "use the address of the primary server"),
    ("does not exist", "has no such database or user", "create it, or correct `ledger:`"),
    ("resolve host", "cannot be found by its host name", "check the host in `ledger:`"),
    ("No space left", "has no space left", "free some space on the server, then run again"),
)
_UNREACHABLE = (
    "cannot be reached",
    "check that the server runs and the address in `ledger:`, then run again",
)


def is_race(error: Exception) -> bool:
    """Two processes met; the loser may try again and will see what the winner wrote."""
    return isinstance(error, sa.exc.DBAPIError) and getattr(error.orig, "sqlstate", None) in _RACES


def refusal(error: Exception, address: Address) -> LedgerError:
    cause: BaseException = getattr(error, "orig", None) or error
    text = address.redact(" ".join(str(cause).split()))
    meaning, hint = _meaning(cause, error)
    return LedgerError(
        f"the ledger {address.place} {meaning} ({text})",
        hint=hint,
        facts={"ledger": address.place, "cause": type(cause).__name__},
    )


def _meaning(cause: BaseException, error: Exception) -> tuple[str, str]:
    if isinstance(cause, ModuleNotFoundError):
        return "needs a driver that is not installed", "install it: pip install 'tallymark[postgres]'"
    if isinstance(cause, UnicodeEncodeError):
        return "cannot keep a text that is not valid Unicode", "rename the file whose name is not UTF-8"
    code = getattr(cause, "sqlite_errorname", None)
    if code:
        for start, meaning, hint in _SQLITE:
            if code.startswith(start):
                return meaning, hint
    else:
        for part, meaning, hint in _POSTGRES:
            if part in str(cause):
                return meaning, hint
        if isinstance(error, sa.exc.OperationalError):
            return _UNREACHABLE
    return "refuses", "run `tallymark doctor` to check it; if it is sound, please report this as a bug"
