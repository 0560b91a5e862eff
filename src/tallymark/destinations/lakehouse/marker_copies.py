"""Where copies of markers are kept: small files beside a table of this machine, a Delta table beside others.

Each row is a fact about one commit, and the same row twice means no more than once. Rows are only added:
what a later look at the log says of a commit is a row of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
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
from tallymark.destinations.lakehouse.history import HeldVersions, aware
from tallymark.destinations.lakehouse.home import MARKER_FILES, MARKER_TABLE, Folder, stored_delta
from tallymark.spark.frames import arrow_frame, fields_of, local_frame

# Kinds of rows. A row of the last two says of a copied commit that the log no longer has it, or has it again.
APPLIED, RESTORED, LOST, FOUND = "applied", "restored", "lost", "found"
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
_COMMITS = [APPLIED, RESTORED]
_COMMIT_FIELDS = ("version", "batch_id", "fence", "restored_to")
_FEW_HASHES = 500
_WANTED = "wanted"

Row = Mapping[str, Any]  # the fields above


@dataclass(frozen=True)
class CopiedCommit:
    """What tells a copied commit from another of the same version."""

    version: int
    batch_id: str | None  # of a load
    fence: int | None  # likewise: a repeated attempt of a batch has another one
    restored_to: int | None  # of a restore


def commit_of(row: Row) -> CopiedCommit:
    return CopiedCommit(row["version"], row["batch_id"], row["fence"], row["restored_to"])


def recorded_as_lost(rows: Iterable[Row]) -> frozenset[CopiedCommit]:
    judged = sorted(
        (row for row in rows if row["kind"] in (LOST, FOUND)), key=lambda row: aware(row["as_of"])
    )
    last = {commit_of(row): row["kind"] for row in judged}
    return frozenset(commit for commit, kind in last.items() if kind == LOST)


@dataclass(frozen=True)
class CopiedMarkers:
    """`rows` are those of the contents that were asked for, and all that are of no content."""

    through: int = -1  # the last version that was copied
    newest: CopiedCommit | None = None  # one of that version
    last_sequence: int = 0
    last_fence: int = 0
    rows: list[Row] = field(default_factory=list)


Lost = AbstractSet[CopiedCommit]


class MarkerCopies(Protocol):
    """Of one table: rows of earlier tables at this path are ignored."""

    def find(self, content_hashes: Collection[str] | None) -> CopiedMarkers: ...

    def last_held(self, held: HeldVersions, lost: Lost = frozenset()) -> int:
        """The highest sequence among the loads that the table holds."""

    def commits(self, held: HeldVersions, lost: Lost = frozenset()) -> DataFrame | None:
        """COMMIT_COLUMNS of those loads."""

    def every_commit(self) -> set[CopiedCommit]:
        """Of loads and restores. Reads all copies: only asked if some of them are lost."""

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
                F.max(F.when(F.col("kind").isin(_COMMITS), F.struct(*_COMMIT_FIELDS))).alias("newest"),
                F.collect_list(F.when(F.col(_WANTED) | (F.col("kind") != APPLIED), row)).alias("rows"),
            )
            .collect()[0]
        )
        newest = found["newest"]
        return CopiedMarkers(
            -1 if found["version"] is None else found["version"],
            None if newest is None else CopiedCommit(*newest),
            found["sequence"] or 0,
            found["fence"] or 0,
            [row.asDict() for row in found["rows"]],
        )

    def last_held(self, held: HeldVersions, lost: Lost = frozenset()) -> int:
        copied = self._rows()
        if copied is None:
            return 0
        return int(copied.where(_held_in_spark(held, lost)).agg(F.max("sequence")).collect()[0][0] or 0)

    def commits(self, held: HeldVersions, lost: Lost = frozenset()) -> DataFrame | None:
        copied = self._rows()
        return None if copied is None else copied.where(_held_in_spark(held, lost)).select(*COMMIT_COLUMNS)

    def every_commit(self) -> set[CopiedCommit]:
        copied = self._rows()
        if copied is None:
            return set()
        found = copied.where(F.col("kind").isin(_COMMITS)).select(*_COMMIT_FIELDS).distinct()
        return {CopiedCommit(*row) for row in found.collect()}

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
            wanted = ds.field("content_hash").isin(hashes) | (ds.field("kind") != APPLIED)
        last = self._read(["version", "sequence", "fence"])
        if not len(last):
            return CopiedMarkers()
        through, sequence, fence = (pc.max(last[name]).as_py() for name in last.column_names)
        if wanted is not None:
            wanted = wanted | (ds.field("version") == through)
        rows = self._read(list(FIELDS), wanted).to_pylist()
        newest = next(commit_of(r) for r in rows if r["version"] == through and r["kind"] in _COMMITS)
        if content_hashes is not None:
            asked = set(content_hashes)
            rows = [row for row in rows if row["kind"] != APPLIED or row["content_hash"] in asked]
        return CopiedMarkers(through, newest, sequence or 0, fence or 0, rows)

    def last_held(self, held: HeldVersions, lost: Lost = frozenset()) -> int:
        if self._elsewhere is not None:
            return self._elsewhere.last_held(held, lost)
        found = self._read(["sequence"], _held_in_files(held, lost))
        return pc.max(found["sequence"]).as_py() or 0

    def every_commit(self) -> set[CopiedCommit]:
        if self._elsewhere is not None:
            return self._elsewhere.every_commit()
        found = self._read(list(_COMMIT_FIELDS), ds.field("kind").isin(_COMMITS))
        return {CopiedCommit(**row) for row in found.group_by(list(_COMMIT_FIELDS)).aggregate([]).to_pylist()}

    def commits(self, held: HeldVersions, lost: Lost = frozenset()) -> DataFrame | None:
        if self._elsewhere is not None:
            return self._elsewhere.commits(held, lost)
        found = self._read(list(COMMIT_COLUMNS), _held_in_files(held, lost))
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


def _held_in_spark(held: HeldVersions, lost: Lost) -> Any:
    is_held = F.lit(False)
    for first, last in held.ranges:
        is_held = is_held | F.col("version").between(first, last)
    attempt = F.concat_ws(" ", F.col("batch_id"), F.col("fence").cast("string"))
    return (F.col("kind") == APPLIED) & is_held & ~attempt.isin(_attempts(lost))


def _held_in_files(held: HeldVersions, lost: Lost) -> ds.Expression:
    version = ds.field("version")
    ranges = ((version >= first) & (version <= last) for first, last in held.ranges)
    is_held = (ds.field("kind") == APPLIED) & reduce(ds.Expression.__or__, ranges)
    if not lost:
        return is_held
    fence = ds.field("fence").cast(pa.string())
    attempt = pc.binary_join_element_wise(ds.field("batch_id"), fence, " ")
    return is_held & ~attempt.isin(pa.array(_attempts(lost), pa.string()))


def _attempts(lost: Lost) -> list[str]:
    """No attempt of a batch commits twice."""
    return [f"{commit.batch_id} {commit.fence}" for commit in lost if commit.batch_id is not None]
