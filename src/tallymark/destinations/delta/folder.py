"""A Delta table in a folder that this process sees as Spark does: what its log tells without a Spark job.

DESCRIBE HISTORY and DESCRIBE DETAIL take longer than a small load; the files that they read are a few lines
of JSON. Whatever these leave open is left to Spark: a log with gaps, commits that are kept elsewhere or say
nothing of themselves, a RESTORE to a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from tallymark.destinations.delta.history import Commits, HistoryEntry
from tallymark.destinations.delta.log_files import CHECKPOINT, COMMIT, commit_file
from tallymark.model.marker import Marker

_FURTHEST_LOOK = 64  # commits back, for the settings of a table
_LARGE_BYTES = 128 << 20
_MANY_FILES = 10_000
_PLACES_OF_UNPUBLISHED_COMMITS = ("_staged_commits", "_commits")


class _Unclear(Exception):
    """Only Spark can tell."""


_ODD_FILE = (_Unclear, OSError, ValueError, TypeError, AttributeError, KeyError, OverflowError)


@dataclass(frozen=True)
class FolderCommits:
    folder: Path
    spark: Commits

    def may_be_there(self) -> bool:
        return (self.folder / "_delta_log").exists()

    def newest(self, limit: int) -> list[HistoryEntry]:
        try:
            return [_entry(self.folder, version) for version in islice(_versions(self.folder), limit)]
        except _ODD_FILE:
            return self.spark.newest(limit)

    def may_go_on(self, version: int) -> bool:
        return True  # looking costs no more than asking whether to look


def _versions(folder: Path) -> Iterator[int]:
    """Of all commits in the log, newest first."""
    log = folder / "_delta_log"
    names = {entry.name for entry in log.iterdir()}
    found = sorted(int(match[1]) for name in names if (match := COMMIT.fullmatch(name)))
    checkpoints = [int(match[1]) for name in names if (match := CHECKPOINT.fullmatch(name))]
    if not found or found != list(range(found[0], found[-1] + 1)):
        raise _Unclear
    if max(checkpoints, default=-1) not in range(found[0] - 1, found[-1] + 1):
        raise _Unclear
    if any(name in names and any((log / name).iterdir()) for name in _PLACES_OF_UNPUBLISHED_COMMITS):
        raise _Unclear
    return reversed(found)


def _entry(folder: Path, version: int) -> HistoryEntry:
    file = commit_file(folder, version)
    info = _commit_info(file)
    operation = info.get("operation") or ""
    restored = (info.get("operationParameters") or {}).get("version") if operation == "RESTORE" else None
    if operation == "RESTORE" and restored in (None, "null"):
        raise _Unclear
    milliseconds = info.get("inCommitTimestamp") or file.stat().st_mtime_ns // 1_000_000  # as Delta has it
    return HistoryEntry(
        version=version,
        committed_at=datetime.fromtimestamp(milliseconds / 1000, UTC),
        operation=operation,
        metrics={name: str(value) for name, value in (info.get("operationMetrics") or {}).items()},
        marker=Marker.from_json(info.get("userMetadata")),
        restored_to=None if restored is None else int(restored),
        read_version=info.get("readVersion"),
    )


def _commit_info(commit: Path) -> dict[str, Any]:
    return _first_action(commit, "commitInfo")


def _first_action(commit: Path, kind: str) -> dict[str, Any]:
    """Spark writes what tells of the commit first, so that of a large one little is read."""
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            if f'"{kind}"' in line and kind in (action := json.loads(line)):
                return dict(action[kind])
    raise _Unclear


@dataclass(frozen=True)
class TableSettings:
    table_id: str
    properties: dict[str, str]


def settings_at(folder: Path, version: int) -> TableSettings | None:
    """None: the last commits do not tell."""
    for earlier in range(version, max(-1, version - _FURTHEST_LOOK), -1):
        try:
            found = _metadata_after(folder, earlier)
            return TableSettings(found["id"], dict(found.get("configuration") or {}))
        except _Unclear:
            continue
        except _ODD_FILE:
            return None
    return None


def _metadata_after(folder: Path, version: int) -> dict[str, Any]:
    """Delta's own summary of the table stands beside each of its commits; one that is of another commit was
    left behind by another table."""
    commit = commit_file(folder, version)
    with suppress(*_ODD_FILE):
        summary = json.loads(commit.with_suffix(".crc").read_bytes())
        if summary["txnId"] == _commit_info(commit)["txnId"]:
            return dict(summary["metadata"])
    return _first_action(commit, "metaData")


def is_large(folder: Path) -> bool:
    """Whether the table has much to read. Files that it no longer holds count until they are vacuumed: for
    choosing how to read it, that is near enough."""
    total = 0
    for files, size in enumerate(_file_sizes(folder), 1):
        total += size
        if total >= _LARGE_BYTES or files >= _MANY_FILES:
            return True
    return False


def _file_sizes(folder: Path) -> Iterator[int]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in files:
            with suppress(OSError):  # vacuumed in this moment
                yield (Path(place) / name).stat().st_size
