"""The ways in which labelled rows get into a Delta table, each one statement and one commit.

All give the same rows and counts: the cheapest that does is chosen, from what the labels have counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F

from tallymark.destinations.contract import Way
from tallymark.destinations.delta.history import DeltaHistory
from tallymark.destinations.lakehouse.labels import Labelled
from tallymark.destinations.lakehouse.merge_source import MATCHES, merge_source
from tallymark.destinations.lakehouse.prune import key_ranges
from tallymark.model.plan import LABEL, Append, ChangeType, Label, Merge, Plan, ReplaceSlices, ReplaceTable
from tallymark.spark.sql import quoted, set_for_now

_COPY_SOURCE = (
    "spark.databricks.delta.merge.materializeSource",
    "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource",
)
_SOURCE, _TARGET = "tm_source", "tm_target"
_FRACTIONAL = ("float", "double")
_MOST_VALUES_TO_BROADCAST = 2_000_000  # every worker holds them all
_PLAIN_NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Target:
    """Where the rows go. A table that exists is written by its folder; one of a catalog that does not
    exist yet is made by its name, in the same commit as its first rows."""

    sql: str
    path: str | None
    latest_version: Callable[[], int | None]
    history: Callable[[], DeltaHistory]
    location: Callable[[], str | Path]  # of a table that exists or is to be made by its path


def choose_way(labelled: Labelled) -> Way:
    return possible_ways(labelled)[0]


def possible_ways(labelled: Labelled) -> tuple[Way, ...]:
    """The cheapest first."""
    match labelled.plan.shape:
        case Append():
            return (Way("append", "every row is added"),)
        case ReplaceTable() | Merge(anew=True):
            return (Way("overwrite", "the whole table is replaced"),)
        case ReplaceSlices():
            return (Way("replace slices", "whole slices of the table are replaced"),)
        case Merge():
            return _ways_to_merge(labelled)


def _ways_to_merge(labelled: Labelled) -> tuple[Way, ...]:
    counts = labelled.counts
    if counts.changes == 0:
        return (Way("skip", "no row changes, so the commit carries only the marker"),)
    append_new = Way("append new", "every change is a key that the table does not have")
    if labelled.plan.current is None:
        return (append_new,)
    if counts.deleted:
        return (Way("merge", "rows go"),)
    if labelled.null_matches:
        return (Way("merge", "rows without a whole key change"),)
    why_not = _why_not_replaced(labelled.plan)
    ways: tuple[Way, ...] = (Way("merge", why_not or "rows change"),)
    if not why_not:
        ways = (Way("replace rows", "rows change and none go"), *ways)
    if counts.updated == counts.closed == 0:
        ways = (append_new, *ways)
    return ways


def _why_not_replaced(plan: Plan) -> str:
    """Delta's replace by columns is far cheaper than MERGE, but the change data feed then shows an update
    as delete and insert, fractional keys have several notations of one value, and the list of columns
    knows no quotes. Empty: it can be taken."""
    assert isinstance(plan.shape, Merge)  # noqa: S101
    keys = {key.casefold() for key in plan.shape.match}
    assert plan.current is not None  # noqa: S101
    if plan.current.properties.get("delta.enableChangeDataFeed") == "true":
        return "the change data feed is to show updates"
    if any(column.name.casefold() in keys and column.type in _FRACTIONAL for column in plan.columns):
        return "a key is a float or double"
    if not all(_PLAIN_NAME.fullmatch(key) for key in keys):
        return "the name of a key needs quotes"
    return ""


def _append(labelled: Labelled, target: Target) -> None:
    _save(_writer(labelled.rows, "append", labelled.plan), target)


def _append_new(labelled: Labelled, target: Target) -> None:
    _save(_writer(labelled.changed_rows(Label.INSERT), "append", labelled.plan), target)


def _skip(labelled: Labelled, target: Target) -> None:
    """No row changes, but the marker must be committed: the content counts as applied."""
    _save(_writer(labelled.changed_rows(Label.INSERT).limit(0), "append", labelled.plan), target)


def _overwrite(labelled: Labelled, target: Target) -> None:
    plan = labelled.plan
    is_labelled = isinstance(plan.shape, Merge)
    rows = labelled.changed_rows(Label.INSERT) if is_labelled else labelled.rows
    writer = _writer(rows, "overwrite", plan)
    if any(isinstance(change, ChangeType) for change in plan.schema_changes):
        writer = writer.option("overwriteSchema", "true")
    _save(writer, target)


def _replace_slices(labelled: Labelled, target: Target) -> None:
    plan = labelled.plan
    assert isinstance(plan.shape, ReplaceSlices)  # noqa: S101
    if plan.current is None:
        return _append(labelled, target)
    on = " AND ".join(f"{_TARGET}.{quoted(c)} <=> {_SOURCE}.{quoted(c)}" for c in plan.shape.columns)
    writer = _writer(labelled.rows.alias(_SOURCE), "overwrite", plan)
    return _save(writer.option("replaceOn", on).option("targetAlias", _TARGET), target)


def _replace_rows(labelled: Labelled, target: Target) -> None:
    plan = labelled.plan
    assert isinstance(plan.shape, Merge)  # noqa: S101
    rows = _small_side(labelled, labelled.changed_rows(Label.INSERT, Label.UPDATE, Label.CLOSE))
    with _read_as_it_is(labelled):
        _save(_writer(rows, "overwrite", plan).option("replaceUsing", ",".join(plan.shape.match)), target)


def _merge(labelled: Labelled, target: Target) -> None:
    plan, spark = labelled.plan, labelled.spark
    assert isinstance(plan.shape, Merge)  # noqa: S101
    _small_side(labelled, merge_source(labelled)).createOrReplaceTempView(_SOURCE)
    names = [column.name for column in plan.columns]
    equals = "<=>" if labelled.null_matches else "="
    on = " AND ".join(f"t.{quoted(name)} {equals} s.{quoted(name)}" for name in plan.shape.match)
    if labelled.repair is None and not labelled.null_matches and (near := key_ranges(plan, plan.shape, "t.")):
        on = f"{near} AND {on}"
    statement = f"""
        MERGE INTO {target.sql} AS t
        USING {_SOURCE} AS s ON s.{MATCHES} AND {on}
        WHEN MATCHED AND s.{LABEL} = '{Label.DELETE}' THEN DELETE
        WHEN MATCHED AND s.{LABEL} IN ('{Label.UPDATE}', '{Label.CLOSE}') THEN
          UPDATE SET {", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in names)}
        WHEN NOT MATCHED AND s.{LABEL} = '{Label.INSERT}' THEN
          INSERT ({", ".join(map(quoted, names))}) VALUES ({", ".join(f"s.{quoted(n)}" for n in names)})
        """
    with _read_as_it_is(labelled):
        spark.sql(statement).collect()


def _small_side(labelled: Labelled, rows: DataFrame) -> DataFrame:
    """Spark cannot tell how few rows are left of a batch; the labels can."""
    values = labelled.counts.changes * len(labelled.plan.columns)
    return F.broadcast(rows) if values <= _MOST_VALUES_TO_BROADCAST else rows


def _read_as_it_is(labelled: Labelled) -> AbstractContextManager[None]:
    """Rows that are kept as rows need not be copied to be the same each time."""
    return set_for_now(labelled.spark, dict.fromkeys(_COPY_SOURCE if labelled.are_rows else (), "none"))


WAYS: dict[str, Callable[[Labelled, Target], None]] = {
    "append": _append,
    "append new": _append_new,
    "skip": _skip,
    "overwrite": _overwrite,
    "replace slices": _replace_slices,
    "replace rows": _replace_rows,
    "merge": _merge,
}


def _writer(rows: DataFrame, mode: str, plan: Plan) -> DataFrameWriter:
    writer = rows.write.format("delta").mode(mode).option("mergeSchema", "true")
    if plan.current is None:
        for name, value in plan.table_properties.items():
            writer = writer.option(name, value)
        if plan.partition_by:
            writer = writer.partitionBy(*plan.partition_by)
    return writer


def _save(writer: DataFrameWriter, target: Target) -> None:
    if target.path is None:
        writer.saveAsTable(target.sql)
    else:
        writer.save(target.path)
