"""Markers of a Delta table: in the commits' userMetadata, and copied to a marker table beside the data.

Commit metadata is lost when Delta cleans its log (30 days by default), so every marker is copied to
`<table>/_tallymark/applied`, a small Delta table inside the data table's folder: it goes where the table
goes, VACUUM leaves folders with a leading underscore alone, and dropping the table drops it too.

1. A load commits rows and marker together (delta_write.py). From here on the content is applied.
2. `copy` appends what the marker table does not have yet. Dying before it loses nothing: the next `find`
   reads the log from where the copy ends, and the next `copy` heals it.
3. RESTORE undoes commits, so it is copied too: a marker between the restored version and the RESTORE is void
   (unless a later RESTORE brings it back).

Rows carry the table's id: a table that is dropped and made again in the same place starts with no markers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.contract import TableMarkers
from tallymark.destinations.delta_history import DeltaHistory, HistoryEntry, aware, held_versions, is_held
from tallymark.destinations.spark_sql import beside_data, delta_table, local_frame
from tallymark.model.marker import Applied, Marker
from tallymark.model.receipt import Counts
from tallymark.model.watermark import Watermark

_SCHEMA = (
    "table_id string, version bigint, kind string, content_hash string, batch_id string, pipeline string, "
    "table_key string, sequence bigint, fence bigint, as_of timestamp, strategy string, counts string, "
    "committed_at timestamp, restored_to bigint, watermark string"
)
_APPLIED, _RESTORED = "applied", "restored"
_FEW_HASHES = 500
_WANTED = "wanted"
COMMIT_COLUMNS = ("batch_id", "sequence", "fence")  # a repeated attempt of a batch has another fence


class DeltaMarkers:
    """Remembers how far it has copied, so that a load that follows a look-up copies its marker without
    reading anything again."""

    def __init__(self, spark: SparkSession, history: DeltaHistory, location: str | Path, table_id: str):
        self._spark = spark
        self._history = history
        self._path = beside_data(location, "applied")
        self._table_id = table_id
        self._copied_through: int | None = None  # None: not looked yet
        self._copied_restores: list[tuple[int, int]] = []

    def find(self, content_hashes: Collection[str] | None) -> TableMarkers:
        """As of the history's last look."""
        self._copied_through, last_sequence, last_fence, rows = self._read_copied(content_hashes)
        self._copied_restores = [
            (row["version"], row["restored_to"]) for row in rows if row["kind"] == _RESTORED
        ]
        fresh = self._fresh()
        applied = _batches_of(rows) + [
            Applied(entry.marker, str(entry.version), entry.committed_at) for entry in fresh if entry.marker
        ]
        restores = self._restores()
        wanted = None if content_hashes is None else set(content_hashes)
        by_hash = {
            content_hash: found
            for found in applied
            if is_held(int(found.version), restores)
            for content_hash in found.marker.content_hashes
            if wanted is None or content_hash in wanted
        }
        markers = [(entry.version, entry.marker) for entry in fresh if entry.marker]
        held = [marker.sequence for version, marker in markers if is_held(version, restores)]
        return TableMarkers(
            by_hash,
            last_sequence=max([last_sequence, *(marker.sequence for _, marker in markers)]),
            last_fence=max([last_fence, *(marker.fence for _, marker in markers)]),
            held_sequence=max([self._copied_and_held(restores) if restores else last_sequence, *held]),
        )

    def commits(self) -> DataFrame:
        """What identifies each load that the table holds: COMMIT_COLUMNS."""
        if self._copied_through is None:
            self.find(())
        restores = self._restores()
        fresh = [
            (entry.marker.batch_id, entry.marker.sequence, entry.marker.fence)
            for entry in self._fresh()
            if entry.marker is not None and is_held(entry.version, restores)
        ]
        found = local_frame(self._spark, [*fresh], "batch_id string, sequence bigint, fence bigint")
        copied = self._copied()
        if copied is None:
            return found
        return copied.where(_still_held(restores)).select(*COMMIT_COLUMNS).unionByName(found).distinct()

    def copy(self) -> None:
        if self._copied_through is None:
            self.find(())
        entries = self._fresh()
        rows = [row for entry in entries for row in self._rows(entry)]
        if rows:
            frame = local_frame(self._spark, rows, _SCHEMA).coalesce(1)
            frame.write.format("delta").mode("append").save(str(self._path))
        if entries:
            self._copied_through = entries[-1].version
            self._copied_restores = self._restores()

    def _fresh(self) -> list[HistoryEntry]:
        """What the log has and the marker table does not, as far as was looked."""
        return self._history.after(-1 if self._copied_through is None else self._copied_through)

    def _restores(self) -> list[tuple[int, int]]:
        fresh = [(e.version, e.restored_to) for e in self._fresh() if e.restored_to is not None]
        return list(dict.fromkeys([*self._copied_restores, *fresh]))

    def _copied(self) -> DataFrame | None:
        copied = delta_table(self._spark, self._path)
        return None if copied is None else copied.where(F.col("table_id") == self._table_id)

    def _copied_and_held(self, restores: Iterable[tuple[int, int]]) -> int:
        copied = self._copied()
        if copied is None:
            return 0
        return int(copied.where(_still_held(restores)).agg(F.max("sequence")).collect()[0][0] or 0)

    def _read_copied(self, content_hashes: Collection[str] | None) -> tuple[int, int, int, list[Row]]:
        """The last version copied, the highest sequence and fence, and the rows of these contents; in one
        query."""
        copied = self._copied()
        if copied is None:
            return -1, 0, 0, []
        row = F.struct(*(F.col(name) for name in copied.columns))
        summary = (
            self._with_wanted(copied, content_hashes)
            .agg(
                F.max("version").alias("version"),
                F.max("sequence").alias("sequence"),
                F.max("fence").alias("fence"),
                F.collect_list(F.when(F.col(_WANTED) | (F.col("kind") == _RESTORED), row)).alias("rows"),
            )
            .collect()[0]
        )
        through = -1 if summary["version"] is None else summary["version"]
        return through, summary["sequence"] or 0, summary["fence"] or 0, summary["rows"]

    def _with_wanted(self, copied: DataFrame, content_hashes: Collection[str] | None) -> DataFrame:
        if content_hashes is None:
            return copied.withColumn(_WANTED, F.lit(True))
        if len(content_hashes) <= _FEW_HASHES:
            return copied.withColumn(_WANTED, F.col("content_hash").isin(list(content_hashes)))
        wanted = local_frame(self._spark, [(h,) for h in content_hashes], "content_hash string")
        wanted = wanted.withColumn(_WANTED, F.lit(True))
        return copied.join(wanted, "content_hash", "left").fillna(False, [_WANTED])

    def _rows(self, entry: HistoryEntry) -> Iterable[tuple[Any, ...]]:
        if entry.restored_to is not None:
            nothing = (None,) * 9
            place = (self._table_id, entry.version, _RESTORED)
            yield (*place, *nothing, entry.committed_at, entry.restored_to, None)
        marker = entry.marker
        if marker is not None:
            for content_hash in marker.content_hashes:
                yield (
                    *(
                        self._table_id,
                        entry.version,
                        _APPLIED,
                        content_hash,
                        marker.batch_id,
                        marker.pipeline,
                    ),
                    *(marker.table_key, marker.sequence, marker.fence, marker.as_of, marker.strategy),
                    *(json.dumps(marker.counts.as_dict()), entry.committed_at, None),
                    json.dumps(marker.watermark.as_dict()) if marker.watermark else None,
                )


def _batches_of(rows: list[Row]) -> list[Applied]:
    """One Applied for each commit, holding those of its contents that were found. Oldest first."""
    commits: dict[int, list[Row]] = {}
    for row in rows:
        if row["kind"] == _APPLIED:
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


def _still_held(restores: Iterable[tuple[int, int]]) -> Column:
    held = F.lit(False)
    for first, last in held_versions(restores):
        held = held | F.col("version").between(first, last)
    return (F.col("kind") == _APPLIED) & held
