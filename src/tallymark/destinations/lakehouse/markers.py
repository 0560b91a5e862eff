"""Markers of a table that Spark writes: in the metadata of its commits, and copied into its folder.

Commit metadata is lost when the log is cleaned up (after 30 days by default for Delta), so every marker is
copied into Tallymark's own folder inside the table's folder: the copies go where the table goes, VACUUM
leaves folders with a leading underscore alone, and dropping the table drops them too.

1. A load commits rows and marker together (commit.py). From here on the content is applied.
2. `copy` adds what is not copied yet. Dying before it loses nothing: the next `find` reads the log from where
   the copies end, and the next `copy` heals them.
3. A restore undoes commits, so it is copied too: a marker between the restored version and the restore is
   void, unless a later restore brings it back.

Rows carry the table's id: a table that is dropped and recreated in the same place starts with no markers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import TableMarkers
from tallymark.destinations.lakehouse.history import HeldVersions, HistoryEntry, TableHistory, aware
from tallymark.destinations.lakehouse.marker_copies import APPLIED, FIELDS, RESTORED, MarkerCopies, Row
from tallymark.model.marker import Applied, Marker
from tallymark.model.receipt import Counts
from tallymark.model.transform import Watermark
from tallymark.spark.frames import local_frame


class LakehouseMarkers:
    """Remembers how far it has copied, so that a load copies its marker without reading anything again."""

    def __init__(self, spark: SparkSession, history: TableHistory, copies: MarkerCopies, table_id: str):
        self._spark = spark
        self._history = history
        self._copies = copies
        self._table_id = table_id
        self._copied_through: int | None = None  # None if not known yet
        self._copied_restores: list[tuple[int, int]] = []

    def find(self, content_hashes: Collection[str] | None) -> TableMarkers:
        """As of the last reading of the history."""
        copied = self._copies.find(content_hashes)
        self._copied_through = copied.through
        self._copied_restores = [
            (row["version"], row["restored_to"]) for row in copied.rows if row["kind"] == RESTORED
        ]
        fresh = self._fresh()
        applied = _batches_of(copied.rows) + [
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
        restored = bool(self._restores())
        copied_and_held = self._copies.last_held(held_versions) if restored else copied.last_sequence
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
            for entry in self._fresh()
            if entry.marker is not None and entry.version in held
        ]
        found = local_frame(self._spark, [*fresh], "batch_id string, sequence bigint, fence bigint")
        copied = self._copies.commits(held)
        return found if copied is None else copied.unionByName(found).distinct()

    def copy(self) -> None:
        if self._copied_through is None:
            self.find(())
        entries = self._fresh()
        rows = [row for entry in entries for row in self._rows(entry)]
        if rows:
            self._copies.add(rows)
        if entries:
            self._copied_through = entries[-1].version
            self._copied_restores = self._restores()

    def _fresh(self) -> list[HistoryEntry]:
        """What the log has and the copies do not, as far as it was read."""
        return self._history.after(-1 if self._copied_through is None else self._copied_through)

    def _held(self) -> HeldVersions:
        return HeldVersions.after_restores(self._restores())

    def _restores(self) -> list[tuple[int, int]]:
        fresh = [(e.version, e.restored_to) for e in self._fresh() if e.restored_to is not None]
        return list(dict.fromkeys([*self._copied_restores, *fresh]))

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
