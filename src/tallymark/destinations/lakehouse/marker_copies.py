"""Where the markers of a Delta table are copied to: `<table>/_tallymark`, inside the table's own folder.

A table in a folder of this machine has them in small Parquet files, `markers/*.parquet`, written and
read without a Spark job. Everywhere else they are a Delta table, `applied`, since only Spark gets there, and
only Delta appends safely to a place that knows no rename. A table may have both: whoever reads, reads both.

Rows are facts about one commit: twice the same row means no more than once, so copying needs no transaction.
How files come and go: fact_files.py.
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

from tallymark.destinations.delta.history import held_versions
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.spark.sql import beside_data, delta_table, local_frame

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
PLACES = _DELTA_TABLE, _FILES = "applied", "markers"  # inside the folder, one or both
_FEW_HASHES = 500
_WANTED = "wanted"

Row = Mapping[str, Any]  # the fields above
Restores = Collection[tuple[int, int]]


@dataclass(frozen=True)
class Copied:
    """`rows` are those of the contents that were asked for, and of every RESTORE."""

    through: int = -1  # the last version that was copied
    last_sequence: int = 0
    last_fence: int = 0
    rows: list[Row] = field(default_factory=list)


class MarkerCopies(Protocol):
    """Of one table: what another one left in the same place has no say."""

    def look(self, content_hashes: Collection[str] | None) -> Copied: ...

    def last_held(self, restores: Restores) -> int:
        """The highest sequence of the loads that no RESTORE has undone."""

    def commits(self, restores: Restores) -> DataFrame | None:
        """COMMIT_COLUMNS of those loads."""

    def add(self, rows: list[Row]) -> None: ...


@dataclass(frozen=True)
class SparkCopies:
    spark: SparkSession
    location: str | Path
    table_id: str

    def look(self, content_hashes: Collection[str] | None) -> Copied:
        copied = self._rows()
        if copied is None:
            return Copied()
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
        return Copied(
            through, found["sequence"] or 0, found["fence"] or 0, [row.asDict() for row in found["rows"]]
        )

    def last_held(self, restores: Restores) -> int:
        copied = self._rows()
        if copied is None:
            return 0
        return int(copied.where(_held_in_spark(restores)).agg(F.max("sequence")).collect()[0][0] or 0)

    def commits(self, restores: Restores) -> DataFrame | None:
        copied = self._rows()
        return None if copied is None else copied.where(_held_in_spark(restores)).select(*COMMIT_COLUMNS)

    def add(self, rows: list[Row]) -> None:
        frame = local_frame(self.spark, [tuple(row[name] for name in FIELDS) for row in rows], _SPARK_SCHEMA)
        path = str(beside_data(self.location, _DELTA_TABLE))
        frame.coalesce(1).write.format("delta").mode("append").save(path)

    def _rows(self) -> DataFrame | None:
        table = delta_table(self.spark, beside_data(self.location, _DELTA_TABLE))
        places = [frame for frame in (table, self._files()) if frame is not None]
        if not places:
            return None
        return reduce(DataFrame.unionByName, places).where(F.col("table_id") == self.table_id)

    def _files(self) -> DataFrame | None:
        path = beside_data(self.location, _FILES)
        if isinstance(path, Path) and not path.is_dir():
            return None
        try:
            files = self.spark.read.schema(_SPARK_SCHEMA).parquet(str(path))
            files.columns  # noqa: B018 (Spark Connect looks only here)
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
class FolderCopies:
    spark: SparkSession
    folder: Path  # the table's own
    table_id: str

    def look(self, content_hashes: Collection[str] | None) -> Copied:
        if self._elsewhere is not None:
            return self._elsewhere.look(content_hashes)
        wanted = None
        if content_hashes is not None:
            hashes = pa.array(content_hashes, pa.string())
            wanted = ds.field("content_hash").isin(hashes) | (ds.field("kind") == RESTORED)
        last = self._read(["version", "sequence", "fence"])
        if not len(last):
            return Copied()
        through, sequence, fence = (pc.max(last[name]).as_py() for name in last.column_names)
        return Copied(through, sequence or 0, fence or 0, self._read(list(FIELDS), wanted).to_pylist())

    def last_held(self, restores: Restores) -> int:
        if self._elsewhere is not None:
            return self._elsewhere.last_held(restores)
        held = self._read(["sequence"], _held_in_files(restores))
        return pc.max(held["sequence"]).as_py() or 0

    def commits(self, restores: Restores) -> DataFrame | None:
        if self._elsewhere is not None:
            return self._elsewhere.commits(restores)
        held = self._read(list(COMMIT_COLUMNS), _held_in_files(restores))
        schema = ", ".join(f"{name} {FIELDS[name]}" for name in COMMIT_COLUMNS)
        return self.spark.createDataFrame(held, schema)

    def add(self, rows: list[Row]) -> None:
        self._write(pa.Table.from_pylist([dict(row) for row in rows], _ARROW_SCHEMA))
        if many := self._files.too_many():
            self._write(self._files.read(lambda _: self._every_row(many)))
            self._files.remove(many)

    @property
    def _elsewhere(self) -> SparkCopies | None:
        """Whoever reached this table through a Spark that shares no files with it has left a Delta table."""
        copied_by_spark = Path(beside_data(self.folder, _DELTA_TABLE)) / "_delta_log"
        return SparkCopies(self.spark, self.folder, self.table_id) if copied_by_spark.is_dir() else None

    @property
    def _files(self) -> FactFiles:
        return FactFiles(Path(beside_data(self.folder, _FILES)), "the markers of loads", _ARROW_SCHEMA)

    def _read(self, columns: list[str], wanted: ds.Expression | None = None) -> pa.Table:
        mine = ds.field("table_id") == self.table_id
        condition = mine if wanted is None else mine & wanted

        def look(files: list[Path]) -> pa.Table:
            if not files:
                return _ARROW_SCHEMA.empty_table().select(columns)
            stored = ds.dataset([str(file) for file in files], schema=_ARROW_SCHEMA, format="parquet")
            return stored.to_table(columns=columns, filter=condition, use_threads=False)

        return self._files.read(look)

    def _every_row(self, files: Iterable[Path]) -> pa.Table:
        """Sorted, so that a look for a few contents can pass most of a long file by."""
        parts = []
        for file in files:
            with suppress(FileNotFoundError):
                parts.append(pq.read_table(file, schema=_ARROW_SCHEMA))
        return pa.concat_tables(parts).sort_by("content_hash") if parts else _ARROW_SCHEMA.empty_table()

    def _write(self, rows: pa.Table) -> None:
        self._files.add(_ARROW_SCHEMA, rows.to_batches())


def copies_beside(spark: SparkSession, location: str | Path, table_id: str) -> MarkerCopies:
    """A Path is a place that this process sees as Spark does."""
    if isinstance(location, Path):
        return FolderCopies(spark, location, table_id)
    return SparkCopies(spark, location, table_id)


def _held_in_spark(restores: Restores) -> Any:
    held = F.lit(False)
    for first, last in held_versions(restores):
        held = held | F.col("version").between(first, last)
    return (F.col("kind") == APPLIED) & held


def _held_in_files(restores: Restores) -> ds.Expression:
    version = ds.field("version")
    ranges = ((version >= first) & (version <= last) for first, last in held_versions(restores))
    return (ds.field("kind") == APPLIED) & reduce(ds.Expression.__or__, ranges)
