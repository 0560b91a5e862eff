"""Tombstones: the deletes that change feeds brought, kept in Tallymark's own folder inside the table's.

For a table in a local folder they are Parquet files, `deletes/*.parquet`, one for each load. Everywhere else
they are a Delta table, `tombstones`. Readers read both.

1. Tombstones are written before the load's own commit, with the batch, sequence and fence of its marker.
   They do not count yet: a crash here leaves rows that nobody reads.
2. The commit that carries the marker makes them valid: neither ever counts without the other. A table that is
   dropped and recreated starts without tombstones, since its markers are gone.
3. `forget` removes what is older than the retention, whether valid or not. A batch that is retried after
   that writes its tombstones again.

A table that the load creates in a catalog has no folder before its first commit; its tombstones are written
right after it. A process that dies between the two loses the deletes of that very first batch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.home import TOMBSTONE_FILES, TOMBSTONE_TABLE, Folder, stored_delta
from tallymark.destinations.lakehouse.marker_copies import COMMIT_COLUMNS
from tallymark.model.plan import Tombstones
from tallymark.model.receipt import Marker
from tallymark.model.types import exact_timestamp, quoted
from tallymark.spark.frames import literal_path, no_rows, temporary_settings

_PREFIX = "_tm_"  # keys of the user's may be called batch_id
_AS_OF = "_tm_as_of"
_COLUMNS = "_tm_columns"  # what else the row has, casefolded: where rows of others have more, it has NULL
_STAMPS = {
    "_tm_batch_id": "string",
    "_tm_sequence": "bigint",
    "_tm_fence": "bigint",
    _AS_OF: "timestamp",
}
_TIMES = "spark.sql.parquet.outputTimestampType"
_PROPERTIES = {
    "delta.columnMapping.mode": "name",  # names with spaces and the like
    "delta.enableTypeWidening": "true",  # a key that became wider in the table
}


class HeldLoads(Protocol):
    def commits(self) -> DataFrame:
        """What identifies each load that the table holds: COMMIT_COLUMNS."""


class TombstoneStore:
    def __init__(self, spark: SparkSession, home: Folder):
        self._spark = spark
        self._table = home.own(TOMBSTONE_TABLE)
        self._folder = home.own(TOMBSTONE_FILES)
        local = self._folder.local
        self._files = None if local is None else FactFiles(local, "remembered deletes")

    def valid(self, wanted: Tombstones, markers: HeldLoads) -> DataFrame:
        """Those of loads that the table holds, not older than the retention. One may occur twice, and several
        may have the same key."""
        table, files = self._in_table(wanted), self._in_files(wanted)
        if table is None and not files:
            return no_rows(self._spark, wanted.columns)
        loads = markers.commits().select(*(F.col(name).alias(_PREFIX + name) for name in COMMIT_COLUMNS))
        valid = [_held(rows, wanted, loads) for rows in files]
        if table is not None:
            # Checkpointed: Spark would drop every cached frame that reads the stored table, labels and all,
            # as soon as this load adds to it.
            valid.append(_held(table, wanted, loads).distinct().localCheckpoint(eager=False))
        return reduce(DataFrame.unionAll, valid)

    def add(self, rows: DataFrame, marker: Marker) -> None:
        stamped = rows.select(
            "*",
            F.lit(marker.batch_id).alias(_PREFIX + "batch_id"),
            F.lit(marker.sequence).cast("bigint").alias(_PREFIX + "sequence"),
            F.lit(marker.fence).cast("bigint").alias(_PREFIX + "fence"),
            F.expr(exact_timestamp(marker.as_of)).alias(_AS_OF),
            _names(rows.columns).alias(_COLUMNS),
        ).coalesce(1)
        if self._files is not None:
            self._add_file(self._files, stamped)
            _join_files(self._files)
            return
        writer = stamped.write.format("delta").mode("append").option("mergeSchema", "true")
        if stored_delta(self._spark, self._table) is None:
            writer = writer.options(**_PROPERTIES)
        writer.save(self._table.url)

    def forget(self, before: datetime) -> None:
        if self._files is not None:
            _forget_in_files(self._files, before)
        stored = stored_delta(self._spark, self._table)
        old = f"{_AS_OF} < {exact_timestamp(before)}"
        if stored is not None and stored.where(old).limit(1).collect():
            self._spark.sql(f"DELETE FROM delta.{quoted(self._table.url)} WHERE {old}").collect()

    def _in_table(self, wanted: Tombstones) -> DataFrame | None:
        stored = stored_delta(self._spark, self._table)
        if stored is None or _COLUMNS not in stored.columns or not _has(stored.columns, wanted):
            return None
        return stored.where(_is_whole(wanted))

    def _in_files(self, wanted: Tombstones) -> list[DataFrame]:
        """One frame for each schema: columns of a feed, or their types, may change between loads."""
        if self._files is None:
            return self._in_files_elsewhere(wanted)
        frames = []
        for schema, files in _by_schema(self._files.schemas()):
            if _has(schema.names, wanted) and {*_STAMPS} <= {*schema.names}:
                read = self._spark.read.schema(from_arrow_schema(schema, prefer_timestamp_ntz=True))
                frames.append(read.parquet(*map(literal_path, files)))
        return frames

    def _in_files_elsewhere(self, wanted: Tombstones) -> list[DataFrame]:
        """Of a table that was loaded as a local folder before. Spark reads narrower types as the wanted ones,
        and NULL for columns that a file lacks."""
        fields = {c.name: c.type for c in wanted.columns} | _STAMPS | {_COLUMNS: "array<string>"}
        schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in fields.items())
        try:
            stored = self._spark.read.schema(schema).parquet(literal_path(self._folder.url))
            stored.columns  # noqa: B018 (Spark Connect reads the files only here)
        except AnalysisException:
            return []
        return [stored.where(_is_whole(wanted))]

    def _add_file(self, files: FactFiles, rows: DataFrame) -> None:
        """Spark writes, since a batch may delete more rows than this process could hold."""
        folder = files.unfinished()
        try:
            # Other readers take Spark's default type for a time without a zone.
            with temporary_settings(self._spark, {_TIMES: "TIMESTAMP_MICROS"}):
                rows.write.option("compression", "snappy").parquet(str(folder))
            for part in folder.glob("part-*.parquet"):
                files.take(part)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _held(rows: DataFrame, wanted: Tombstones, loads: DataFrame) -> DataFrame:
    return (
        rows.where(F.col(_AS_OF) >= F.expr(exact_timestamp(wanted.forget_before)))
        .join(loads, on=[_PREFIX + name for name in COMMIT_COLUMNS], how="left_semi")
        .select(*(F.col(quoted(c.name)).cast(c.type).alias(c.name) for c in wanted.columns))
    )


def _names(names: Iterable[str]) -> Column:
    return F.array(*(F.lit(name.casefold()) for name in names))


def _is_whole(wanted: Tombstones) -> Column:
    """Whether a row has all key columns: one that it lacks is not the NULL of a truncate."""
    return F.size(F.array_except(_names(c.name for c in wanted.columns), F.col(_COLUMNS))) == 0


def _has(names: Iterable[str], wanted: Tombstones) -> bool:
    return {c.name.casefold() for c in wanted.columns} <= {name.casefold() for name in names}


def _by_schema(files: dict[Path, pa.Schema]) -> list[tuple[pa.Schema, list[Path]]]:
    found: list[tuple[pa.Schema, list[Path]]] = []
    for file, schema in files.items():
        alike = next((known for first, known in found if first.equals(schema)), None)
        if alike is None:
            found.append((schema, [file]))
        else:
            alike.append(file)
    return found


def _join_files(files: FactFiles) -> None:
    many = set(files.too_many())
    if many:
        for _, alike in _by_schema({f: schema for f, schema in files.schemas().items() if f in many}):
            if len(alike) > 1:
                files.rewrite(alike)


def _forget_in_files(files: FactFiles, before: datetime) -> None:
    old = ds.field(_AS_OF) < pa.scalar(before.astimezone(UTC), pa.timestamp("us", "UTC"))

    def counted(listed: list[Path]) -> dict[Path, tuple[int, int]]:
        stored = {file: ds.dataset([str(file)], format="parquet") for file in listed}
        ours = {file: rows for file, rows in stored.items() if _AS_OF in rows.schema.names}
        return {file: (rows.count_rows(), rows.count_rows(filter=old)) for file, rows in ours.items()}

    for file, (rows, forgotten) in files.read(counted).items():
        if forgotten == rows:
            files.remove([file])
        elif forgotten:
            files.rewrite([file], ~old)
    files.remove_unfinished(before)
