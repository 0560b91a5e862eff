"""Copies of a table's markers, in Tallymark's own folder inside the table's folder.

For a local folder they are small Parquet files, `markers/*.parquet`, written and read without a Spark job.
Everywhere else they are a Delta table, `applied`: only Spark reaches that place, and only Delta appends
safely to a store without rename. A table may have both, so readers read both.

Each row is a fact about one commit. The same row twice means no more than once, so copying needs no
transaction.
"""

from __future__ import annotations

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

from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.history import HeldVersions
from tallymark.destinations.lakehouse.home import MARKER_FILES, MARKER_TABLE, Folder, stored_delta
from tallymark.spark.frames import local_frame

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
        return self.spark.createDataFrame(found, schema)

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
