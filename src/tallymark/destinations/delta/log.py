"""The commits of one Delta table, from the files of its log where they are local, else from Spark.

What was read once is kept; only what came after it is read again. Reading files runs no Spark job and imports
no Spark: DESCRIBE HISTORY takes longer than a small load, and a run that finds nothing new starts no Spark.
Files that are not enough are left to Spark: a log with gaps, commits that are kept elsewhere, a RESTORE to a
time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from tallymark.destinations.lakehouse.history import HeldVersions, HistoryEntry, aware
from tallymark.errors import DestinationError
from tallymark.model.receipt import Marker

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


FEW_COMMITS = 4
_MOST_KEPT = 500
_LONGEST_LOOK_BACK = 64

# Operations that leave every row as it is.
_MAINTENANCE = {
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD CONSTRAINT",
    "DROP CONSTRAINT",
    "ADD COLUMNS",
    "CLUSTER BY",
    "UPGRADE PROTOCOL",
    "COMPUTE STATS",
}


class CommitReader(Protocol):
    """Reads the commits of one table, as its log has them now."""

    def maybe_exists(self) -> bool:
        """False only if there is certainly no table."""

    def newest(self, limit: int) -> list[HistoryEntry]:
        """Newest first; fewer than `limit` only if the log holds no more. Raises Spark's own errors, such as
        for a table that does not exist."""

    def maybe_newer_than(self, version: int) -> bool:
        """False only if there is certainly no later commit."""


class DeltaHistory:
    def __init__(self, commits: CommitReader):
        self._commits = commits
        self._entries: list[HistoryEntry] = []  # without gaps, oldest first, ends with the last one seen
        self._is_complete = False  # the log holds nothing older than the first of them
        self.recreated = False  # another table is in the place of the one that was read before

    def latest_version(self) -> int | None:
        """The table's latest version now; None if there is certainly no table. Raises Spark's own errors."""
        if not self._entries and not self._commits.maybe_exists():
            return None
        if not self._entries or self._commits.maybe_newer_than(self._entries[-1].version):
            self.read()
        return self._entries[-1].version if self._entries else None

    def read(self) -> None:
        """Read on from the last commit seen."""
        known = self._entries[-1] if self._entries else None
        entries = self._newest(FEW_COMMITS, None if known is None else known.version)
        if known is None:
            self._entries = entries
            return
        same = next((entry for entry in entries if entry.version == known.version), None)
        self.recreated = same is None or not _same_commit(same, known)
        if not self.recreated:
            entries = self._entries + [entry for entry in entries if entry.version > known.version]
        self._entries = entries[-_MOST_KEPT:]
        self._is_complete = self._is_complete and len(entries) <= _MOST_KEPT

    def holding(self, content_hashes: Collection[str]) -> Marker | None:
        """One of the loads seen that brought any of these contents and was not undone."""
        wanted = set(content_hashes)
        restores = [(e.version, e.restored_to) for e in self._entries if e.restored_to is not None]
        held = HeldVersions.after_restores(restores)
        for entry in self._entries:
            marker = entry.marker
            if marker and not wanted.isdisjoint(marker.content_hashes) and entry.version in held:
                return marker
        return None

    @property
    def last_seen(self) -> int:
        return self._entries[-1].version if self._entries else -1

    def after(self, version: int) -> list[HistoryEntry]:
        """Commits after `version` up to the last one seen, oldest first."""
        if self._entries and self._entries[0].version > version + 1 and not self._is_complete:
            seen = self._entries[-1].version
            entries = self._newest(2 * FEW_COMMITS, version + 1)
            self._entries = [entry for entry in entries if entry.version <= seen]
        return [entry for entry in self._entries if entry.version > version]

    def unique_by(self) -> tuple[str, ...]:
        """What the last load left unique, unless somebody else may have changed rows since."""
        limit = len(self._entries)
        while self._entries and all(entry.operation in _MAINTENANCE for entry in self._entries):
            if self._is_complete or limit > _LONGEST_LOOK_BACK:
                return ()
            limit *= 2
            self.after(max(-1, self._entries[-1].version - limit))
        last = next((e for e in reversed(self._entries) if e.operation not in _MAINTENANCE), None)
        return last.marker.unique_by if last is not None and last.marker is not None else ()

    def _newest(self, limit: int, down_to: int | None) -> list[HistoryEntry]:
        """The newest commits, oldest first: a few, or more if it takes more to reach `down_to`."""
        while True:
            entries = self._commits.newest(limit)
            whole = len(entries) < limit or entries[-1].version == 0
            if down_to is None or whole or entries[-1].version <= down_to:
                self._is_complete = self._is_complete or whole
                return entries[::-1]
            limit = max(2 * limit, entries[0].version - down_to + 1)


@dataclass(frozen=True)
class SparkCommits:
    """DESCRIBE HISTORY runs a Spark job. Asking for a version that does not exist yet only lists the log."""

    spark: SparkSession
    table_sql: str

    def maybe_exists(self) -> bool:
        return True

    def newest(self, limit: int) -> list[HistoryEntry]:
        rows = self.spark.sql(f"DESCRIBE HISTORY {self.table_sql} LIMIT {limit}").collect()
        return [self._with_restored_version(_entry_of_row(row), row) for row in rows]

    def maybe_newer_than(self, version: int) -> bool:
        from pyspark.errors import AnalysisException

        from tallymark.spark.failures import condition

        try:
            self.spark.sql(f"SELECT * FROM {self.table_sql} VERSION AS OF {version + 1}").schema  # noqa: B018
        except AnalysisException as error:
            latest = (error.getMessageParameters() or {}).get("latest")
            return condition(error) != "DELTA_VERSION_NOT_FOUND" or latest != str(version)
        except Exception:  # reading the history will tell
            return True
        return True

    def _with_restored_version(self, entry: HistoryEntry, row: Row) -> HistoryEntry:
        """RESTORE … TO TIMESTAMP names no version in the log: it is the last one up to that time."""
        if entry.operation != "RESTORE" or entry.restored_to is not None:
            return entry
        at = datetime.fromisoformat(
            str(row["operationParameters"]["timestamp"]).strip('"').replace(" ", "T", 1)
        )
        older = self.spark.sql(f"DESCRIBE HISTORY {self.table_sql}").collect()
        versions = [r["version"] for r in older if r["timestamp"] <= at and r["version"] < entry.version]
        return replace(entry, restored_to=max(versions, default=0))


def _entry_of_row(row: Row) -> HistoryEntry:
    parameters = row["operationParameters"] or {}
    restored = parameters.get("version") if row["operation"] == "RESTORE" else None
    return HistoryEntry(
        version=row["version"],
        committed_at=aware(row["timestamp"]),
        operation=row["operation"] or "",
        metrics=dict(row["operationMetrics"] or {}),
        marker=Marker.from_json(row["userMetadata"]),
        restored_to=int(restored) if restored not in (None, "null") else None,
        read_version=row["readVersion"],
    )


def _same_commit(one: HistoryEntry, other: HistoryEntry) -> bool:
    """Delta moves equal file times apart by milliseconds, depending on how much of the log it reads."""
    apart = abs((one.committed_at - other.committed_at).total_seconds())
    return apart < 1 and (one.operation, one.marker) == (other.operation, other.marker)


COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(?:json|parquet)")
_BOOKKEEPING = {"commitInfo", "txn"}  # actions that say nothing about rows, columns or properties
_MOST_COMMITS_BACK = 64  # commits back, for the settings of a table
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
        return True  # reading on costs no more than asking


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
    if _has_unpublished_commits(folder):
        raise _Unclear
    return reversed(found)


def _has_unpublished_commits(folder: Path) -> bool:
    places = [folder / "_delta_log" / name for name in _PLACES_OF_UNPUBLISHED_COMMITS]
    return any(place.is_dir() and any(place.iterdir()) for place in places)


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
    """Spark writes the commit information first, so little of a large commit is read."""
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
    """None if the last commits do not contain them."""
    for earlier in range(version, max(-1, version - _MOST_COMMITS_BACK), -1):
        try:
            found = _metadata_after(folder, earlier)
            return TableSettings(found["id"], dict(found.get("configuration") or {}))
        except _Unclear:
            continue
        except _ODD_FILE:
            return None
    return None


def _metadata_after(folder: Path, version: int) -> dict[str, Any]:
    """Delta writes a checksum file with the metadata beside each commit. One of another transaction was left
    by an earlier table in this place."""
    commit = commit_file(folder, version)
    with suppress(*_ODD_FILE):
        summary = json.loads(commit.with_suffix(".crc").read_bytes())
        if summary["txnId"] == _commit_info(commit)["txnId"]:
            return dict(summary["metadata"])
    return _first_action(commit, "metaData")


def is_large(folder: Path) -> bool:
    """Whether the table has much to read. Files that it no longer holds count until they are vacuumed: for
    choosing how to read it, that is good enough."""
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
            with suppress(OSError):  # vacuumed just now
                yield (Path(place) / name).stat().st_size


def went_back(table_path: str, version: int, batch_id: str) -> bool:
    """Whether the table no longer holds the commit of this batch: it is not in the log, a later one is a
    RESTORE, or the table is gone. False for logs that are not local or no longer reach back to it."""
    folder = local_folder(table_path)
    if folder is None:
        return False
    log = folder / "_delta_log"
    if not log.is_dir():
        return folder.parent.is_dir()  # False if the whole disk is missing
    own = commit_file(folder, version)
    if not (_is_of(own, batch_id) if own.is_file() else _reaches(folder, version)):
        return True
    for later in count(version + 1):
        commit = log / f"{later:020}.json"
        if not commit.is_file():
            return False
        if _is_restore(commit):
            return True
    return False


def _is_of(commit: Path, batch_id: str) -> bool:
    """An unreadable file is not: then the table itself must be asked, and says what is wrong with its log."""
    try:
        marker = Marker.from_json(_commit_info(commit).get("userMetadata"))
    except _ODD_FILE:
        return False
    return marker is not None and marker.batch_id == batch_id


def _reaches(folder: Path, version: int) -> bool:
    """Whether a commit without a file was cleaned up: then later ones are there, or a checkpoint of it."""
    if _has_unpublished_commits(folder):
        return True
    latest = latest_version(folder)
    return latest is not None and latest >= version


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
    """Tells this commit from the commit of the same number in an earlier table of this place. If its file is
    gone, the checkpoint and its time are used; None if both are gone."""
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
    """None for a table that is not local."""
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
