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
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.contract import TableMarkers
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.history import HeldVersions, HistoryEntry, TableHistory, aware
from tallymark.destinations.lakehouse.home import MARKER_FILES, MARKER_TABLE, Folder, stored_delta
from tallymark.model.batch import Watermark
from tallymark.model.receipt import Applied, Counts, Marker
from tallymark.spark.frames import arrow_frame, fields_of, local_frame


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


APPLIED, RESTORED = "applied", "restored"  # kinds of rows
COMMIT_COLUMNS = ("batch_id", "sequence", "fence")  # a repeated attempt of a batch has another fence
FIELDS = {
    "table_id": "string",
    "version": "bigint",
    "kind": "string",
    "content_hash": "string",
    "batch_id": "string",
    "pipeline": "string",
    "table_key": "string",
    "sequence": "bigint",
    "fence": "bigint",
    "as_of": "timestamp",
    "strategy": "string",
    "counts": "string",
    "committed_at": "timestamp",
    "restored_to": "bigint",
    "watermark": "string",
}
_SPARK_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
_ARROW_TYPES = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC")}
_ARROW_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in FIELDS.items()])
_FEW_HASHES = 500
_WANTED = "wanted"

Row = Mapping[str, Any]  # the fields above


@dataclass(frozen=True)
class CopiedMarkers:
    """`rows` are those of the contents that were asked for, and of every restore."""

    through: int = -1  # the last version that was copied
    last_sequence: int = 0
    last_fence: int = 0
    rows: list[Row] = field(default_factory=list)


class MarkerCopies(Protocol):
    """Of one table: rows of earlier tables at this path are ignored."""

    def find(self, content_hashes: Collection[str] | None) -> CopiedMarkers: ...

    def last_held(self, held: HeldVersions) -> int:
        """The highest sequence among the loads that the table holds."""

    def commits(self, held: HeldVersions) -> DataFrame | None:
        """COMMIT_COLUMNS of those loads."""

    def add(self, rows: list[Row]) -> None: ...


@dataclass(frozen=True)
class SparkCopies:
    spark: SparkSession
    home: Folder
    table_id: str

    def find(self, content_hashes: Collection[str] | None) -> CopiedMarkers:
        copied = self._rows()
        if copied is None:
            return CopiedMarkers()
        row = F.struct(*(F.col(name) for name in FIELDS))
        found = (
            self._with_wanted(copied, content_hashes)
            .agg(
                F.max("version").alias("version"),
                F.max("sequence").alias("sequence"),
                F.max("fence").alias("fence"),
                F.collect_list(F.when(F.col(_WANTED) | (F.col("kind") == RESTORED), row)).alias("rows"),
            )
            .collect()[0]
        )
        through = -1 if found["version"] is None else found["version"]
        return CopiedMarkers(
            through, found["sequence"] or 0, found["fence"] or 0, [row.asDict() for row in found["rows"]]
        )

    def last_held(self, held: HeldVersions) -> int:
        copied = self._rows()
        if copied is None:
            return 0
        return int(copied.where(_held_in_spark(held)).agg(F.max("sequence")).collect()[0][0] or 0)

    def commits(self, held: HeldVersions) -> DataFrame | None:
        copied = self._rows()
        return None if copied is None else copied.where(_held_in_spark(held)).select(*COMMIT_COLUMNS)

    def add(self, rows: list[Row]) -> None:
        frame = local_frame(self.spark, [tuple(row[name] for name in FIELDS) for row in rows], _SPARK_SCHEMA)
        frame.coalesce(1).write.format("delta").mode("append").save(self.home.own(MARKER_TABLE).url)

    def _rows(self) -> DataFrame | None:
        table = stored_delta(self.spark, self.home.own(MARKER_TABLE))
        places = [frame for frame in (table, self._files()) if frame is not None]
        if not places:
            return None
        return reduce(DataFrame.unionByName, places).where(F.col("table_id") == self.table_id)

    def _files(self) -> DataFrame | None:
        place = self.home.own(MARKER_FILES)
        if place.local is not None and not place.local.is_dir():
            return None
        try:
            files = self.spark.read.schema(_SPARK_SCHEMA).parquet(place.url)
            files.columns  # noqa: B018 (Spark Connect reads the table only here)
        except AnalysisException:
            return None
        return files

    def _with_wanted(self, copied: DataFrame, content_hashes: Collection[str] | None) -> DataFrame:
        if content_hashes is None:
            return copied.withColumn(_WANTED, F.lit(True))
        if len(content_hashes) <= _FEW_HASHES:
            return copied.withColumn(_WANTED, F.col("content_hash").isin(list(content_hashes)))
        wanted = local_frame(self.spark, [(h,) for h in content_hashes], "content_hash string")
        wanted = wanted.withColumn(_WANTED, F.lit(True))
        return copied.join(wanted, "content_hash", "left").fillna(False, [_WANTED])


@dataclass(frozen=True)
class FileCopies:
    spark: SparkSession
    folder: Path  # of the table
    table_id: str

    def find(self, content_hashes: Collection[str] | None) -> CopiedMarkers:
        if self._elsewhere is not None:
            return self._elsewhere.find(content_hashes)
        wanted = None
        if content_hashes is not None:
            hashes = pa.array(content_hashes, pa.string())
            wanted = ds.field("content_hash").isin(hashes) | (ds.field("kind") == RESTORED)
        last = self._read(["version", "sequence", "fence"])
        if not len(last):
            return CopiedMarkers()
        through, sequence, fence = (pc.max(last[name]).as_py() for name in last.column_names)
        return CopiedMarkers(through, sequence or 0, fence or 0, self._read(list(FIELDS), wanted).to_pylist())

    def last_held(self, held: HeldVersions) -> int:
        if self._elsewhere is not None:
            return self._elsewhere.last_held(held)
        found = self._read(["sequence"], _held_in_files(held))
        return pc.max(found["sequence"]).as_py() or 0

    def commits(self, held: HeldVersions) -> DataFrame | None:
        if self._elsewhere is not None:
            return self._elsewhere.commits(held)
        found = self._read(list(COMMIT_COLUMNS), _held_in_files(held))
        schema = ", ".join(f"{name} {FIELDS[name]}" for name in COMMIT_COLUMNS)
        return arrow_frame(self.spark, found, fields_of(schema))

    def add(self, rows: list[Row]) -> None:
        self._write(pa.Table.from_pylist([dict(row) for row in rows], _ARROW_SCHEMA))
        if many := self._files.too_many():
            self._write(self._files.read(lambda _: self._every_row(many)))
            self._files.remove(many)

    @property
    def _elsewhere(self) -> SparkCopies | None:
        """A load through a Spark that shares no files with this process has left a Delta table here."""
        home = Folder.at(self.folder)
        copies = home.own(MARKER_TABLE).local
        has_table = copies is not None and (copies / "_delta_log").is_dir()
        return SparkCopies(self.spark, home, self.table_id) if has_table else None

    @property
    def _files(self) -> FactFiles:
        return FactFiles(self.folder / "_tallymark" / MARKER_FILES, "the markers of loads", _ARROW_SCHEMA)

    def _read(self, columns: list[str], wanted: ds.Expression | None = None) -> pa.Table:
        mine = ds.field("table_id") == self.table_id
        condition = mine if wanted is None else mine & wanted

        def find(files: list[Path]) -> pa.Table:
            if not files:
                return _ARROW_SCHEMA.empty_table().select(columns)
            stored = ds.dataset([str(file) for file in files], schema=_ARROW_SCHEMA, format="parquet")
            return stored.to_table(columns=columns, filter=condition, use_threads=False)

        return self._files.read(find)

    def _every_row(self, files: Iterable[Path]) -> pa.Table:
        """Sorted, so that a search for a few contents skips most of a long file."""
        parts = []
        for file in files:
            with suppress(FileNotFoundError):
                parts.append(pq.read_table(file, schema=_ARROW_SCHEMA))
        return pa.concat_tables(parts).sort_by("content_hash") if parts else _ARROW_SCHEMA.empty_table()

    def _write(self, rows: pa.Table) -> None:
        self._files.add(_ARROW_SCHEMA, rows.to_batches())


def copies_in(spark: SparkSession, home: Folder, table_id: str) -> MarkerCopies:
    if home.local is not None:
        return FileCopies(spark, home.local, table_id)
    return SparkCopies(spark, home, table_id)


def _held_in_spark(held: HeldVersions) -> Any:
    is_held = F.lit(False)
    for first, last in held.ranges:
        is_held = is_held | F.col("version").between(first, last)
    return (F.col("kind") == APPLIED) & is_held


def _held_in_files(held: HeldVersions) -> ds.Expression:
    version = ds.field("version")
    ranges = ((version >= first) & (version <= last) for first, last in held.ranges)
    return (ds.field("kind") == APPLIED) & reduce(ds.Expression.__or__, ranges)
