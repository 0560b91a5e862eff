"""How labelled rows get into a Delta table: one statement and one commit, with marker and fence.

Marker (`userMetadata`) and fence (`txnAppId`, `txnVersion`) are set on the isolated session: whatever commits
there carries them, and Delta itself drops a commit whose `txnVersion` is not above the last.

All methods give the same rows and counts. The cheapest one is chosen from what the labels have counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.contract import WriteMethod
from tallymark.destinations.delta.transactions import APP
from tallymark.destinations.lakehouse.history import HistoryEntry
from tallymark.destinations.lakehouse.labels import MATCHES, Labelled, Repair, merge_source
from tallymark.destinations.lakehouse.relations import key_range_filter
from tallymark.errors import NotATable, TallymarkError
from tallymark.model.plan import LABEL, Append, ChangeType, Label, Merge, Plan, ReplaceSlices, ReplaceTable
from tallymark.model.receipt import Counts, Marker
from tallymark.model.types import quoted
from tallymark.spark.failures import condition, reason
from tallymark.spark.frames import temporary_settings

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_LOCATION_IN_USE = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_EVOLVE = "spark.databricks.delta.schema.autoMerge.enabled"
_COPY_SOURCE = (
    "spark.databricks.delta.merge.materializeSource",
    "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource",
)
_SOURCE, _TARGET = "tm_source", "tm_target"
_FRACTIONAL = ("float", "double")
_MOST_VALUES_TO_BROADCAST = 2_000_000  # every worker holds them all
_PLAIN_NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class WriteTarget:
    """A table that exists is written by its folder. A table of a catalog that does not exist yet is created
    by its name, in the same commit as its first rows."""

    sql: str
    path: str | None


def write(labelled: Labelled, method: WriteMethod, marker: Marker, target: WriteTarget) -> None:
    with _marked_and_fenced(labelled.spark, marker):
        _METHODS[method.name](labelled, target)


def write_methods(labelled: Labelled) -> tuple[WriteMethod, ...]:
    """The cheapest first."""
    match labelled.plan.shape:
        case Append():
            return (WriteMethod("append", "every row is added"),)
        case ReplaceTable() | Merge(rebuilds=True):
            return (WriteMethod("overwrite", "the whole table is replaced"),)
        case ReplaceSlices():
            return (WriteMethod("replace slices", "whole slices of the table are replaced"),)
        case Merge():
            return _merge_methods(labelled)


def _merge_methods(labelled: Labelled) -> tuple[WriteMethod, ...]:
    counts = labelled.counts
    if counts.changes == 0:
        return (WriteMethod("skip", "no row changes, so the commit carries only the marker"),)
    append_new = WriteMethod("append new", "every change is a key that the table does not have")
    if labelled.plan.current is None:
        return (append_new,)
    if counts.deleted:
        return (WriteMethod("merge", "the batch deletes rows"),)
    if labelled.null_matches:
        return (WriteMethod("merge", "rows with a NULL in their key change"),)
    why_not = _why_not_replaced(labelled.plan)
    methods: tuple[WriteMethod, ...] = (WriteMethod("merge", why_not or "rows change"),)
    if not why_not:
        methods = (WriteMethod("replace rows", "rows change and none are deleted"), *methods)
    if counts.updated == counts.closed == 0:
        methods = (append_new, *methods)
    return methods


def _why_not_replaced(plan: Plan) -> str:
    """Empty if Delta's replace by columns can be used. It is far cheaper than MERGE, but the change data feed
    shows its updates as delete and insert, it compares fractional keys by their bits, and its list of columns
    has no quotes."""
    assert isinstance(plan.shape, Merge)  # noqa: S101
    keys = {key.casefold() for key in plan.shape.match}
    assert plan.current is not None  # noqa: S101
    if plan.current.properties.get("delta.enableChangeDataFeed") == "true":
        return "the change data feed must show updates"
    if any(column.name.casefold() in keys and column.type in _FRACTIONAL for column in plan.columns):
        return "a key is a float or double"
    if not all(_PLAIN_NAME.fullmatch(key) for key in keys):
        return "the name of a key needs quotes"
    return ""


def _append(labelled: Labelled, target: WriteTarget) -> None:
    _save(_writer(labelled.rows, "append", labelled.plan), target)


def _append_new(labelled: Labelled, target: WriteTarget) -> None:
    _save(_writer(labelled.changed_rows(Label.INSERT), "append", labelled.plan), target)


def _skip(labelled: Labelled, target: WriteTarget) -> None:
    """No row changes, but the marker must be committed: the content counts as applied."""
    _save(_writer(labelled.changed_rows(Label.INSERT).limit(0), "append", labelled.plan), target)


def _overwrite(labelled: Labelled, target: WriteTarget) -> None:
    plan = labelled.plan
    is_labelled = isinstance(plan.shape, Merge)
    rows = labelled.changed_rows(Label.INSERT) if is_labelled else labelled.rows
    writer = _writer(rows, "overwrite", plan)
    if any(isinstance(change, ChangeType) for change in plan.schema_changes):
        writer = writer.option("overwriteSchema", "true")
    _save(writer, target)


def _replace_slices(labelled: Labelled, target: WriteTarget) -> None:
    plan = labelled.plan
    assert isinstance(plan.shape, ReplaceSlices)  # noqa: S101
    if plan.current is None:
        return _append(labelled, target)
    on = " AND ".join(f"{_TARGET}.{quoted(c)} <=> {_SOURCE}.{quoted(c)}" for c in plan.shape.columns)
    writer = _writer(labelled.rows.alias(_SOURCE), "overwrite", plan)
    return _save(writer.option("replaceOn", on).option("targetAlias", _TARGET), target)


def _replace_rows(labelled: Labelled, target: WriteTarget) -> None:
    plan = labelled.plan
    assert isinstance(plan.shape, Merge)  # noqa: S101
    rows = _small_side(labelled, labelled.changed_rows(Label.INSERT, Label.UPDATE, Label.CLOSE))
    with _read_as_it_is(labelled):
        _save(_writer(rows, "overwrite", plan).option("replaceUsing", ",".join(plan.shape.match)), target)


def _merge(labelled: Labelled, target: WriteTarget) -> None:
    plan, spark = labelled.plan, labelled.spark
    assert isinstance(plan.shape, Merge)  # noqa: S101
    _small_side(labelled, merge_source(labelled)).createOrReplaceTempView(_SOURCE)
    names = [column.name for column in plan.columns]
    equals = "<=>" if labelled.null_matches else "="
    on = " AND ".join(f"t.{quoted(name)} {equals} s.{quoted(name)}" for name in plan.shape.match)
    if labelled.repair is None and not labelled.null_matches and (ranges := key_range_filter(plan, "t.")):
        on = f"{ranges} AND {on}"
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
    """Spark cannot tell how few rows of a batch are left; the labels can."""
    values = labelled.counts.changes * len(labelled.plan.columns)
    return F.broadcast(rows) if values <= _MOST_VALUES_TO_BROADCAST else rows


def _read_as_it_is(labelled: Labelled) -> AbstractContextManager[None]:
    """Checkpointed rows are the same each time, so Delta need not copy them."""
    return temporary_settings(
        labelled.spark, dict.fromkeys(_COPY_SOURCE if labelled.are_rows else (), "none")
    )


_METHODS: dict[str, Callable[[Labelled, WriteTarget], None]] = {
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


def _save(writer: DataFrameWriter, target: WriteTarget) -> None:
    if target.path is None:
        writer.saveAsTable(target.sql)
    else:
        writer.save(target.path)


def refusal(table: str, error: Exception) -> TallymarkError | None:
    """For an error that proves that nothing was written."""
    if condition(error) != _LOCATION_IN_USE:
        return None
    return NotATable(
        f"{table}: the catalog does not know it, but its folder is not empty: {reason(error)}",
        hint="nothing was written; if the folder holds a Delta table (_delta_log), make it known again: "
        f"CREATE TABLE {table} USING delta LOCATION '<folder>'; if a killed first load has left "
        "nothing but data files there, remove them; then run again",
    )


def is_conflict(error: Exception) -> bool:
    return condition(error).startswith("DELTA_CONCURRENT") or "Concurrent" in type(error).__name__


def _marked_and_fenced(spark: SparkSession, marker: Marker) -> AbstractContextManager[None]:
    return temporary_settings(
        spark,
        {
            _USER_METADATA: marker.to_json(),
            _APP_ID: APP,
            _APP_VERSION: str(marker.sequence),
            _EVOLVE: "true",  # the plan has already decided which columns are new
        },
    )


def disagreement(entry: HistoryEntry, labelled: Labelled, method: str, planned: int) -> str:
    """Empty if Delta's commit agrees with the plan."""
    return _counted_differently(entry, labelled, method) or _based_on_another_version(entry, planned, method)


def _counted_differently(entry: HistoryEntry, labelled: Labelled, method: str) -> str:
    counts, metrics = labelled.counts, {k: int(v) for k, v in entry.metrics.items() if v.isdigit()}
    replaced = counts.updated + counts.closed
    if method == "merge":
        expected = _merge_metrics(counts, labelled.repair)
        seen = {name: metrics.get(name, 0) for name in expected}
    else:
        expected = {"rows written": counts.inserted + replaced}
        seen = {"rows written": metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)}
        if method in ("replace rows", "replace slices") and labelled.plan.current is not None:
            expected["rows replaced"] = replaced + counts.deleted
            seen["rows replaced"] = metrics.get("numDeletedRows", 0)
    if seen == expected:
        return ""
    return f"Delta's commit {entry.version} counted {seen}, the plan said {expected}"


def _based_on_another_version(entry: HistoryEntry, planned: int, method: str) -> str:
    """Between the last check and the write, a writer without a lease can still come in."""
    if method == "append" or entry.read_version in (None, planned):
        return ""
    return f"Delta's commit {entry.version} was based on version {entry.read_version}, the plan on {planned}"


def _merge_metrics(counts: Counts, repair: Repair | None) -> dict[str, int]:
    """A duplicated match is deleted with all its rows and inserted once, unless the load deletes it."""
    reinserted = repair.found.keys - repair.deleted if repair is not None else 0
    rewritten = repair.updated if repair is not None else 0
    return {
        "numTargetRowsInserted": counts.inserted + reinserted,
        "numTargetRowsUpdated": counts.updated + counts.closed - rewritten,
        "numTargetRowsDeleted": counts.deleted + reinserted,
    }
