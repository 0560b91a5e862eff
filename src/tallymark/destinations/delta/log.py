"""The commits of one Delta table. What was read once is kept; only what came after it is read again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from tallymark.destinations.lakehouse.history import HeldVersions, HistoryEntry, aware
from tallymark.model.marker import Marker

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_FEW_COMMITS = 4
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
        entries = self._newest(_FEW_COMMITS, None if known is None else known.version)
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
            entries = self._newest(2 * _FEW_COMMITS, version + 1)
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
        return [self._with_restored_version(_entry(row), row) for row in rows]

    def maybe_newer_than(self, version: int) -> bool:
        from pyspark.errors import AnalysisException

        from tallymark.spark.sql import condition

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


def _entry(row: Row) -> HistoryEntry:
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
