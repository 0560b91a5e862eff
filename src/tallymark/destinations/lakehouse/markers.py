"""Markers of a table that Spark writes: in the metadata of its commits, and copied into its folder.

Commit metadata is lost when the log is cleaned up (after 30 days by default for Delta), so every marker is
copied into Tallymark's own folder inside the table's folder: the copies go where the table goes, VACUUM
leaves folders with a leading underscore alone, and dropping the table drops them too.

1. A load commits rows and marker together (commit.py). From here on the content is applied.
2. `copy` adds what is not copied yet. Dying before it loses nothing: the next `find` reads the log from where
   the copies end, and the next `copy` heals them.
3. A restore undoes commits, so it is copied too: a marker between the restored version and the restore is
   void, unless a later restore brings it back.

4. A copy never outlives its commit. The log can end earlier than the copies: a power loss took its newest
   commits, or its folder was brought back from another backup than the rest. `find` compares the newest copy
   with the log, and where they differ all of them: a copy that the log contradicts is lost and has no say,
   except that its numbers stay used. `copy` records that, since others may commit under the same versions.
   Copies older than the log's first commit stay valid: they are what log clean-up makes necessary.

Rows carry the table's id: a table that is dropped and recreated in the same place starts with no markers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import TableMarkers
from tallymark.destinations.lakehouse.history import HeldVersions, HistoryEntry, TableHistory, aware
from tallymark.destinations.lakehouse.marker_copies import (
    APPLIED,
    FIELDS,
    FOUND,
    LOST,
    RESTORED,
    CopiedCommit,
    CopiedMarkers,
    MarkerCopies,
    Row,
    commit_of,
    recorded_as_lost,
)
from tallymark.model.batch import Watermark
from tallymark.model.receipt import Applied, Counts, Marker
from tallymark.spark.frames import local_frame


class LakehouseMarkers:
    """Remembers how far it has copied, so that a load copies its marker without reading anything again."""

    def __init__(self, spark: SparkSession, history: TableHistory, copies: MarkerCopies, table_id: str):
        self._spark = spark
        self._history = history
        self._copies = copies
        self._table_id = table_id
        self._copied_through: int | None = None  # None if not known yet; up to here, copies and log agree
        self._copied_restores: list[tuple[int, int]] = []
        self._lost: frozenset[CopiedCommit] = frozenset()  # copies of commits that the log does not have
        self._recorded_lost: frozenset[CopiedCommit] = frozenset()  # those of which the copies say so

    def find(self, content_hashes: Collection[str] | None) -> TableMarkers:
        """As of the last reading of the history."""
        copied = self._copies.find(content_hashes)
        self._compare(copied)
        rows = [row for row in copied.rows if commit_of(row) not in self._lost]
        self._copied_restores = [
            (row["version"], row["restored_to"]) for row in rows if row["kind"] == RESTORED
        ]
        fresh = self.fresh()
        applied = _batches_of(rows) + [
            Applied(entry.marker, str(entry.version), entry.committed_at) for entry in fresh if entry.marker
        ]
        held_versions = self._held()
        wanted = None if content_hashes is None else set(content_hashes)
        by_hash = {
            content_hash: found
            for found in applied
            if int(found.version) in held_versions
            for content_hash in found.marker.content_hashes
            if wanted is None or content_hash in wanted
        }
        markers = [(entry.version, entry.marker) for entry in fresh if entry.marker]
        held = [marker.sequence for version, marker in markers if version in held_versions]
        all_held = not self._restores() and not self._lost
        copied_and_held = (
            copied.last_sequence if all_held else self._copies.last_held(held_versions, self._lost)
        )
        return TableMarkers(
            by_hash,
            last_sequence=max([copied.last_sequence, *(marker.sequence for _, marker in markers)]),
            last_fence=max([copied.last_fence, *(marker.fence for _, marker in markers)]),
            held_sequence=max([copied_and_held, *held]),
        )

    def commits(self) -> DataFrame:
        """What identifies each load that the table holds: COMMIT_COLUMNS."""
        if self._copied_through is None:
            self.find(())
        held = self._held()
        fresh = [
            (entry.marker.batch_id, entry.marker.sequence, entry.marker.fence)
            for entry in self.fresh()
            if entry.marker is not None and entry.version in held
        ]
        found = local_frame(self._spark, [*fresh], "batch_id string, sequence bigint, fence bigint")
        copied = self._copies.commits(held, self._lost)
        return found if copied is None else copied.unionByName(found).distinct()

    def copy(self) -> None:
        if self._copied_through is None:
            self.find(())
        entries = self.fresh()
        rows = [row for entry in entries for row in self._rows(entry)]
        rows += [self._judged(LOST, commit) for commit in self._lost - self._recorded_lost]
        rows += [self._judged(FOUND, commit) for commit in self._recorded_lost - self._lost]
        if rows:
            self._copies.add(rows)
            self._recorded_lost = self._lost
        if entries:
            self._copied_through = entries[-1].version
            self._copied_restores = self._restores()

    def fresh(self) -> list[HistoryEntry]:
        """What the log has and the copies do not, as far as it was read."""
        return self._history.after(-1 if self._copied_through is None else self._copied_through)

    def reaches_copies(self) -> bool:
        """False if commits between the last copied one and the first of the log are gone: a load among them
        has no marker any more."""
        fresh = self.fresh()
        through = -1 if self._copied_through is None else self._copied_through
        return not fresh or fresh[0].version == through + 1

    def _compare(self, copied: CopiedMarkers) -> None:
        """Phase 4. A commit is made on top of those before it, so older copies need not be looked at once one
        is confirmed."""
        self._recorded_lost = recorded_as_lost(copied.rows)
        if not self._recorded_lost and (copied.newest is None or self._is_in_log(copied.newest)):
            self._copied_through, self._lost = copied.through, frozenset()
            return
        self._copied_through, lost = -1, set(self._recorded_lost)
        others = self._copies.every_commit() - self._recorded_lost
        for version in sorted({commit.version for commit in others}, reverse=True):
            here = {commit for commit in others if commit.version == version}
            confirmed = {commit for commit in here if self._is_in_log(commit)}
            lost |= here - confirmed
            if confirmed:
                self._copied_through = version
                break
        fresh = {commit_of(row) for entry in self.fresh() for row in self._rows(entry)}
        self._lost = frozenset(lost - fresh)  # the log itself may have been brought back

    def _is_in_log(self, commit: CopiedCommit) -> bool:
        """Also if the log no longer reaches back to it: only clean-up removes the beginning of a log."""
        later = self._history.after(commit.version - 1)
        if not later:
            return False
        if later[0].version > commit.version:
            return True
        if commit.restored_to is not None:  # a restore to a time names no version, and may count another one
            return later[0].restored_to is not None
        return commit in {commit_of(row) for row in self._rows(later[0])}

    def _held(self) -> HeldVersions:
        return HeldVersions.after_restores(self._restores())

    def _restores(self) -> list[tuple[int, int]]:
        fresh = [(e.version, e.restored_to) for e in self.fresh() if e.restored_to is not None]
        return list(dict.fromkeys([*self._copied_restores, *fresh]))

    def _judged(self, kind: str, commit: CopiedCommit) -> Row:
        facts = {"table_id": self._table_id, "kind": kind, "as_of": datetime.now(UTC)}
        return dict.fromkeys(FIELDS) | asdict(commit) | facts

    def _rows(self, entry: HistoryEntry) -> Iterable[Row]:
        commit = {"table_id": self._table_id, "version": entry.version, "committed_at": entry.committed_at}
        empty = dict.fromkeys(FIELDS)
        if entry.restored_to is not None:
            yield empty | commit | {"kind": RESTORED, "restored_to": entry.restored_to}
        marker = entry.marker
        if marker is None:
            return
        facts = {
            "batch_id": marker.batch_id,
            "pipeline": marker.pipeline,
            "table_key": marker.table_key,
            "sequence": marker.sequence,
            "fence": marker.fence,
            "as_of": marker.as_of,
            "strategy": marker.strategy,
            "counts": json.dumps(marker.counts.as_dict()),
            "watermark": json.dumps(marker.watermark.as_dict()) if marker.watermark else None,
        }
        for content_hash in marker.content_hashes:
            yield empty | commit | facts | {"kind": APPLIED, "content_hash": content_hash}


def _batches_of(rows: Iterable[Row]) -> list[Applied]:
    """One Applied for each commit, holding those of its contents that were found. Oldest first."""
    commits: dict[int, list[Row]] = {}
    for row in rows:
        if row["kind"] == APPLIED:
            commits.setdefault(row["version"], []).append(row)
    return [_applied(version, commits[version]) for version in sorted(commits)]


def _applied(version: int, rows: list[Row]) -> Applied:
    first = rows[0]
    marker = Marker(
        batch_id=first["batch_id"],
        pipeline=first["pipeline"],
        table_key=first["table_key"],
        sequence=first["sequence"],
        fence=first["fence"],
        content_hashes=tuple(dict.fromkeys(row["content_hash"] for row in rows)),
        as_of=aware(first["as_of"]),
        strategy=first["strategy"],
        counts=Counts(**json.loads(first["counts"])),
        watermark=Watermark.from_dict(json.loads(first["watermark"] or "null")),
    )
    return Applied(marker, str(version), aware(first["committed_at"]))
