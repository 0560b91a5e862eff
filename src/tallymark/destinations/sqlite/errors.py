"""What SQLite's errors mean to the user."""

from __future__ import annotations

import sqlite3
from typing import Protocol

from tallymark.errors import DestinationError, RowsRefused, TableBusy, TallymarkError


class SqlitePlace(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def busy_seconds(self) -> float: ...


_MEANINGS = (
    (
        "SQLITE_NOTADB",
        "is not a SQLite database",
        "set `path` to a SQLite file, or to one that is not there yet",
    ),
    ("SQLITE_CORRUPT", "is damaged", "restore it from a backup"),
    (
        "SQLITE_CANTOPEN",
        "cannot be opened",
        "check that its folder exists and that this user may write there",
    ),
    ("SQLITE_READONLY", "is read-only", "let this user write the file and its folder"),
    ("SQLITE_FULL", "cannot grow: the disk is full", "free some space on its disk, then run again"),
    ("SQLITE_IOERR", "cannot be read or written", "check its disk, then run again"),
)


def refusal(error: sqlite3.Error | OverflowError, place: SqlitePlace) -> TallymarkError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TableBusy(
            f"{place.path}: another process writes this database, "
            f"for more than {place.busy_seconds:g} seconds",
            hint="run again when it is done",
        )
    if code.startswith("SQLITE_CONSTRAINT"):
        return RowsRefused.by_constraint(place.path, error)
    for start, meaning, hint in _MEANINGS:
        if code.startswith(start):
            return DestinationError(f"{place.path}: {meaning} ({error})", hint=hint)
    return DestinationError(f"{place.path}: SQLite refuses: {error}")
