"""A small batch on the driver, as the flow gives it to destinations that take Arrow rows. No Spark job is needed:
one would take longer than the rest of most tests."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oracle import Row
from tallymark.destinations.contract import ArrowRows, Destination, PreparedLoad, SparkRows, TargetTable
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER, Plan

MANY = "TALLYMARK_EXAMPLES" in os.environ  # make property
_TECHNICAL = f"{FILE_ORDER} int, {ROW_BLOCK} bigint, {ROW_ORDER} bigint"


def prepare(
    destination: Destination,
    target: TargetTable,
    spark: SparkSession,
    plan: Plan,
    schema: str,
    rows: list[Row],
    *,
    for_commit: bool = True,
) -> AbstractContextManager[PreparedLoad]:
    """Through Spark where the flow would do so, and in `make property`."""
    table = arrow_rows(schema, rows)
    if destination.capabilities.takes_arrow and _are_staged_as_they_are(plan, schema) and not MANY:
        return target.prepare(plan, ArrowRows([table], len(rows)), for_commit=for_commit)
    frame = spark.createDataFrame(table, struct(f"{schema}, {_TECHNICAL}"))
    return target.prepare(plan, SparkRows(frame, len(rows)), for_commit=for_commit)


def struct(schema: str) -> StructType:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found


def arrow_rows(schema: str, rows: list[Row]) -> pa.Table:
    technical = ({FILE_ORDER: 0, ROW_BLOCK: 0, ROW_ORDER: number} for number in range(len(rows)))
    whole = [{**row, **added} for row, added in zip(rows, technical, strict=True)]
    return pa.Table.from_pylist(whole, to_arrow_schema(struct(f"{schema}, {_TECHNICAL}")))


def _are_staged_as_they_are(plan: Plan, schema: str) -> bool:
    own = {f.name.casefold(): f.dataType.simpleString() for f in struct(schema).fields}
    return all(own.get(c.name.casefold()) == c.type and "<" not in c.type for c in plan.given)
