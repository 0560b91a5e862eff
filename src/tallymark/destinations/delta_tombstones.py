"""What a Delta table remembers of deletes that change feeds brought: a small Delta table beside the data,
`<table>/_tallymark/tombstones`.

1. Tombstones are written before the load's own commit, with the batch, sequence and fence of its marker.
   They have no say yet: a crash here leaves rows that nobody reads.
2. The commit that carries the marker makes them valid. There is no moment in which one counts without the
   other, and a table that is dropped and made again starts without: its markers are gone.
3. `forget` removes what is older than the retention, whether valid or not. A batch that is retried after
   that writes its tombstones again.

A table that the load creates in a catalog has no folder before its first commit; then they are written
right after it. A process that dies between the two forgets the deletes of that very first batch.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.delta_marker_copies import COMMIT_COLUMNS
from tallymark.destinations.delta_markers import DeltaMarkers
from tallymark.destinations.spark_sql import (
    beside_data,
    delta_table,
    exact_timestamp,
    no_rows,
    quoted,
)
from tallymark.model.marker import Marker
from tallymark.model.plan import Tombstones

_FORGOTTEN: dict[str, datetime] = {}  # path → before when this process has removed its tombstones
_AS_OF = "_tm_as_of"
_PREFIX = "_tm_"  # keys of the user's may be called batch_id
_PROPERTIES = {
    "delta.columnMapping.mode": "name",  # names with spaces and the like
    "delta.enableTypeWidening": "true",  # a key that became wider in the table
}


class DeltaTombstones:
    def __init__(self, spark: SparkSession, location: str | Path):
        self._spark = spark
        self._path = beside_data(location, "tombstones")

    def valid(self, wanted: Tombstones, markers: DeltaMarkers) -> DataFrame:
        """Those of loads that the table holds, not older than the retention. Several for one key remain.

        Cut off from the stored table: Spark would throw away every cached frame that reads it as soon as
        this load adds to it, labels and all."""
        stored = delta_table(self._spark, self._path)
        names = {name.casefold() for name in stored.columns} if stored is not None else set()
        if stored is None or not {c.name.casefold() for c in wanted.columns} <= names:
            return no_rows(self._spark, wanted.columns)
        loads = markers.commits().select(*(F.col(name).alias(_PREFIX + name) for name in COMMIT_COLUMNS))
        return (
            stored.where(F.col(_AS_OF) >= F.expr(exact_timestamp(wanted.forget_before)))
            .join(loads, on=[_PREFIX + name for name in COMMIT_COLUMNS], how="left_semi")
            .select(*(F.col(quoted(c.name)).cast(c.type).alias(c.name) for c in wanted.columns))
            .distinct()
            .localCheckpoint(eager=False)
        )

    def add(self, rows: DataFrame, marker: Marker) -> None:
        stamped = rows.select(
            "*",
            F.lit(marker.batch_id).alias(_PREFIX + "batch_id"),
            F.lit(marker.sequence).cast("bigint").alias(_PREFIX + "sequence"),
            F.lit(marker.fence).cast("bigint").alias(_PREFIX + "fence"),
            F.expr(exact_timestamp(marker.as_of)).alias(_AS_OF),
        )
        writer = stamped.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true")
        if delta_table(self._spark, self._path) is None:
            writer = writer.options(**_PROPERTIES)
        writer.save(str(self._path))

    def forget(self, before: datetime) -> None:
        """Once for each moment that a process meets (plans round them): looking costs more than keeping a few
        too many."""
        if _FORGOTTEN.get(str(self._path)) == before:
            return
        _FORGOTTEN[str(self._path)] = before
        stored = delta_table(self._spark, self._path)
        old = f"{_AS_OF} < {exact_timestamp(before)}"
        if stored is not None and stored.where(old).limit(1).collect():
            self._spark.sql(f"DELETE FROM delta.{quoted(str(self._path))} WHERE {old}").collect()
