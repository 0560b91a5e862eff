"""The Delta log of a table in a local folder, read from its files.

No Spark job is run and no Spark is imported: DESCRIBE HISTORY and DESCRIBE DETAIL take longer than a small
load, and a run that finds nothing new starts no Spark. What the files leave open is left to Spark: a log with
gaps, commits that are kept elsewhere or lack their commit information, a RESTORE to a time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tallymark.destinations.delta.log import CommitReader
from tallymark.destinations.lakehouse.history import HistoryEntry
from tallymark.errors import DestinationError
from tallymark.model.marker import Marker

COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(?:json|parquet)")
_BOOKKEEPING = {"commitInfo", "txn"}  # actions that say nothing about rows, columns or properties
_FURTHEST_LOOK = 64  # commits back, for the settings of a table
_LARGE_BYTES = 128 << 20
_MANY_FILES = 10_000
_PLACES_OF_UNPUBLISHED_COMMITS = ("_staged_commits", "_commits")


class _Unclear(Exception):
    """Only Spark can tell."""


_ODD_FILE = (_Unclear, OSError, ValueError, TypeError, AttributeError, KeyError, OverflowError)


@dataclass(frozen=True)
class FileCommits:
    """Falls back to Spark where the files are not enough."""

    folder: Path
    spark: CommitReader

    def maybe_exists(self) -> bool:
        return (self.folder / "_delta_log").exists()

    def newest(self, limit: int) -> list[HistoryEntry]:
        try:
            return [_entry(self.folder, version) for version in islice(_versions(self.folder), limit)]
        except _ODD_FILE:
            return self.spark.newest(limit)

    def maybe_newer_than(self, version: int) -> bool:
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


def restored_since(table_path: str, version: int) -> bool:
    """Whether a commit after this version is a RESTORE, or the table is no longer there. False for logs that
    are elsewhere, or do not reach that far."""
    folder = local_folder(table_path)
    if folder is None:
        return False
    log = folder / "_delta_log"
    if not log.is_dir():
        return folder.parent.is_dir()  # not when a whole disk is away
    for later in count(version + 1):
        commit = log / f"{later:020}.json"
        if not commit.is_file():
            return False
        if _is_restore(commit):
            return True
    return False


def latest_version(folder: Path) -> int | None:
    """Of the table in this folder; None when there is none. Clean-up may leave nothing of the last commit but
    its checkpoint."""
    try:
        names = [entry.name for entry in (folder / "_delta_log").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(folder, error) from error
    found = [COMMIT.fullmatch(name) or CHECKPOINT.fullmatch(name) for name in names]
    return max((int(match[1]) for match in found if match), default=None)


def latest_change(folder: Path) -> int | None:
    """The latest version without the commits after it that leave the table as it was: those of VACUUM, and of
    loads that found nothing to change."""
    version = latest_version(folder)
    while version and _changes_nothing(folder, version) and commit_file(folder, version - 1).is_file():
        version -= 1
    return version


def _changes_nothing(folder: Path, version: int) -> bool:
    try:
        with commit_file(folder, version).open(encoding="utf-8") as lines:
            return all(set(json.loads(line)) <= _BOOKKEEPING for line in lines if line.strip())
    except (OSError, ValueError):
        return False


def commit_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"


def commit_digest(folder: Path, version: int) -> str | None:
    """What tells this commit from the one that has its number in another table of the same place. Without its
    file, its checkpoint must do, with the time it was written; None without both."""
    try:
        if commit_file(folder, version).is_file():
            return sha256(commit_file(folder, version).read_bytes()).hexdigest()
        parts = sorted((folder / "_delta_log").glob(f"{version:020}.checkpoint.*"))
        stats = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
    except OSError as error:
        raise _unreadable(folder, error) from error
    return sha256(repr(stats).encode()).hexdigest() if stats else None


def _unreadable(folder: Path, error: OSError) -> DestinationError:
    return DestinationError(
        f"{folder}: its Delta log cannot be read: {error}",
        hint="check that this user may read the table's folder and that its _delta_log is whole",
    )


def local_folder(table_path: str) -> Path | None:
    """None for a table that is elsewhere."""
    address = urlsplit(table_path)
    if address.scheme == "file":
        return Path(unquote(address.path))
    return Path(table_path) if not address.scheme else None


def _is_restore(commit: Path) -> bool:
    try:
        actions = [
            json.loads(line) for line in commit.read_text("utf-8").splitlines() if "commitInfo" in line
        ]
    except (OSError, ValueError):
        return False
    return any(action.get("commitInfo", {}).get("operation") == "RESTORE" for action in actions)
