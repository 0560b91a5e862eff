"""How a labelled plan becomes one Delta commit that carries its marker and its fence.

1. Look again: if the table moved since the labels were computed, write nothing (TableMoved).
2. Set marker (`userMetadata`) and fence (`txnAppId`, `txnVersion`) on the isolated session: whatever
   commits there carries them, and Delta itself drops a commit whose `txnVersion` is not above the last.
3. Write, in one statement, by the cheapest way that gives the labelled rows.
4. Find our commit in the log. It is there: done, and its own metrics must agree with the labels. It is not:
   a newer writer has taken over (Fenced). The log cannot be read: CommitUnknown, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from tallymark.destinations.contract import Commit, SampleRow
from tallymark.destinations.delta_markers import DeltaMarkers, HistoryEntry
from tallymark.destinations.spark_labels import Labelled
from tallymark.destinations.spark_sql import condition, lost_connection, quoted, reason
from tallymark.errors import CommitUnknown, DestinationError, Fenced, TableMoved, TallymarkError
from tallymark.model.marker import Marker
from tallymark.model.plan import Append, ChangeType, Label, Merge, Plan, ReplaceSlices, ReplaceTable
from tallymark.model.receipt import Counts

TRANSACTION_APP = "tallymark"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_EVOLVE = "spark.databricks.delta.schema.autoMerge.enabled"
_SOURCE, _TARGET = "tm_source", "tm_target"
_FRACTIONAL = ("float", "double")


@dataclass(frozen=True)
class Target:
    """Where the rows go. A table that exists is written by its folder; one of a catalog that does not
    exist yet is made by its name, in the same commit as its first rows."""

    sql: str
    path: str | None
    latest_version: Callable[[], int | None]
    markers: Callable[[], DeltaMarkers]


@dataclass(frozen=True)
class DeltaPrepared:
    labelled: Labelled
    target: Target

    @property
    def counts(self) -> Counts:
        return self.labelled.counts

    @property
    def table_rows(self) -> int:
        return self.labelled.table_rows

    def samples(self, limit: int) -> list[SampleRow]:
        return self.labelled.samples(limit)

    def sql(self) -> str:
        return self.labelled.sql()

    def commit(self, marker: Marker) -> Commit:
        plan = self.labelled.plan
        planned = -1 if plan.current is None else int(plan.current.version)
        latest = self.target.latest_version()
        if planned != (-1 if latest is None else latest):
            raise TableMoved(f"{plan.table}: another commit came in since the plan was made")
        way = _choose_way(self.labelled)
        with _marked_and_fenced(self.labelled.spark, marker):
            try:
                _WAYS[way](self.labelled, self.target)
            except Exception as error:
                return self._settle_failed_write(error, marker, planned, way)
        return self._find_commit(marker, planned, way)

    def _find_commit(self, marker: Marker, planned: int, way: str) -> Commit:
        found = self._our_entry(marker, planned)
        if found is None:
            raise Fenced(
                f"{self.labelled.plan.table}: the commit of batch {marker.batch_id} was refused, since a "
                f"newer writer has used sequence {marker.sequence} or a later one",
                hint="run again: the batch is claimed anew",
            )
        return Commit(str(found.version), found.committed_at, way, _disagreement(found, self.labelled, way))

    def _settle_failed_write(self, error: Exception, marker: Marker, planned: int, way: str) -> Commit:
        """An error does not prove that nothing was committed: the log does."""
        table = self.labelled.plan.table
        if lost_connection(error):
            raise CommitUnknown(f"{table}: the answer to the commit got lost: {reason(error)}") from error
        try:
            found = self._our_entry(marker, planned)
        except Exception as unreadable:
            raise CommitUnknown(f"{table}: {reason(error)}; nor can the log be read") from unreadable
        if found is not None:
            return self._find_commit(marker, planned, way)
        if condition(error).startswith("DELTA_CONCURRENT") or "Concurrent" in type(error).__name__:
            raise TableMoved(f"{table}: {reason(error)}") from error
        raise write_error(table, error) from error

    def _our_entry(self, marker: Marker, planned: int) -> HistoryEntry | None:
        entries = self.target.markers().history_after(planned)
        ours = (e for e in entries if e.marker is not None and e.marker.batch_id == marker.batch_id)
        return next(ours, None)


def write_error(table: str, error: Exception) -> TallymarkError:
    if isinstance(error, TallymarkError):
        return error
    text = reason(error)
    hint = "nothing was written; see the Spark log for the whole error"
    if "No space left" in str(error):
        hint = (
            "nothing was committed; free disk space for the table and Spark's scratch folder, then run again"
        )
    elif "Permission denied" in str(error):
        hint = "nothing was committed; make the table's folder writable for this user, then run again"
    return DestinationError(f"{table}: the write failed: {text}", hint=hint)


@contextmanager
def _marked_and_fenced(spark: SparkSession, marker: Marker) -> Iterator[None]:
    settings = {
        _USER_METADATA: marker.to_json(),
        _APP_ID: TRANSACTION_APP,
        _APP_VERSION: str(marker.sequence),
        _EVOLVE: "true",  # the plan has already decided which columns are new
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            with suppress(Exception):  # the session may be gone, and its settings with it
                spark.conf.unset(name)


def _choose_way(labelled: Labelled) -> str:
    plan, counts = labelled.plan, labelled.counts
    match plan.shape:
        case Append():
            return "append"
        case ReplaceTable():
            return "overwrite"
        case ReplaceSlices():
            return "replace slices"
        case Merge():
            if counts.changes == 0:
                return "skip"
            if counts.updated == counts.deleted == 0:
                return "append new"
            if counts.deleted == 0 and _replaceable(plan):
                return "replace rows"
            return "merge"


def _replaceable(plan: Plan) -> bool:
    """Delta's replace by columns is far cheaper than MERGE, but the change data feed then shows an update
    as delete and insert, and fractional keys have several notations of one value."""
    assert isinstance(plan.shape, Merge)  # noqa: S101
    keys = {key.casefold() for key in plan.shape.keys}
    fractional = any(c.name.casefold() in keys and c.type in _FRACTIONAL for c in plan.columns)
    feed = plan.current is not None and plan.current.properties.get("delta.enableChangeDataFeed") == "true"
    return plan.current is not None and not fractional and not feed


def _append(labelled: Labelled, target: Target) -> None:
    _save(_writer(labelled.rows, "append", labelled.plan), target)


def _append_new(labelled: Labelled, target: Target) -> None:
    _save(_writer(labelled.changed_rows(Label.INSERT), "append", labelled.plan), target)


def _skip(labelled: Labelled, target: Target) -> None:
    """No row changes, but the marker must be committed: the content counts as applied."""
    _save(_writer(labelled.changed_rows(Label.INSERT).limit(0), "append", labelled.plan), target)


def _overwrite(labelled: Labelled, target: Target) -> None:
    plan = labelled.plan
    writer = _writer(labelled.rows, "overwrite", plan)
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
    rows = labelled.changed_rows(Label.INSERT, Label.UPDATE)
    _save(_writer(rows, "overwrite", plan).option("replaceUsing", ",".join(plan.shape.keys)), target)


def _merge(labelled: Labelled, target: Target) -> None:
    plan, spark = labelled.plan, labelled.spark
    assert isinstance(plan.shape, Merge)  # noqa: S101
    labelled.rows.createOrReplaceTempView(_SOURCE)
    names = [column.name for column in plan.columns]
    on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in plan.shape.keys)
    spark.sql(
        f"""
        MERGE INTO {target.sql} AS t
        USING (SELECT * FROM {_SOURCE} WHERE _tm_label IN ('insert', 'update', 'delete')) AS s ON {on}
        WHEN MATCHED AND s._tm_label = 'delete' THEN DELETE
        WHEN MATCHED AND s._tm_label = 'update' THEN
          UPDATE SET {", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in names)}
        WHEN NOT MATCHED AND s._tm_label = 'insert' THEN
          INSERT ({", ".join(map(quoted, names))}) VALUES ({", ".join(f"s.{quoted(n)}" for n in names)})
        """
    ).collect()


_WAYS: dict[str, Callable[[Labelled, Target], None]] = {
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


def _disagreement(entry: HistoryEntry, labelled: Labelled, way: str) -> str:
    """What Delta counted in the commit against what the labels said; empty when they agree."""
    counts, metrics = labelled.counts, {k: int(v) for k, v in entry.metrics.items() if v.isdigit()}
    wrote = counts.inserted + counts.updated
    if way == "merge":
        expected = {
            "numTargetRowsInserted": counts.inserted,
            "numTargetRowsUpdated": counts.updated,
            "numTargetRowsDeleted": counts.deleted,
        }
        seen = {name: metrics.get(name, 0) for name in expected}
    else:
        expected = {"rows written": wrote}
        seen = {"rows written": metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)}
        if way in ("replace rows", "replace slices") and labelled.plan.current is not None:
            expected["rows replaced"] = counts.updated + counts.deleted
            seen["rows replaced"] = metrics.get("numDeletedRows", 0)
    if seen == expected:
        return ""
    return f"Delta's commit {entry.version} counted {seen}, the plan said {expected}"
