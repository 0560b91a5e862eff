"""What SQLite's errors mean to the user."""

from __future__ import annotations

import sqlite3

from tallymark.errors import DestinationError, RowsRefused, TableBusy, TallymarkError

_MEANINGS = (
    (
        "SQLITE_NOTADB",
        "is not a SQLite database",
        "set `path` to a SQLite file, or to a file that does not exist yet",
    ),
    ("SQLITE_CORRUPT", "is damaged", "restore it from a backup"),
    (
        "SQLITE_CANTOPEN",
        "cannot be opened",
        "check that its folder exists and that this user may write to it",
    ),
    ("SQLITE_READONLY", "is read-only", "give this user write permission for the file and its folder"),
    ("SQLITE_FULL", "cannot grow: the disk is full", "free some space on its disk, then run again"),
    ("SQLITE_IOERR", "cannot be read or written", "check its disk, then run again"),
)


def refusal(error: sqlite3.Error | OverflowError, path: str, busy_seconds: float) -> TallymarkError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TableBusy(
            f"{path}: another process has been writing to this database "
            f"for more than {busy_seconds:g} seconds",
            hint="run again when it has finished",
        )
    if code.startswith("SQLITE_CONSTRAINT"):
        return RowsRefused.by_constraint(path, error)
    for start, meaning, hint in _MEANINGS:
        if code.startswith(start):
            return DestinationError(f"{path}: {meaning} ({error})", hint=hint)
    return DestinationError(f"{path}: SQLite reports: {error}")
