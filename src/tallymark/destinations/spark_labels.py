"""Runs a plan's queries in Spark: for every destination whose tables Spark reads itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.contract import SampleRow
from tallymark.destinations.spark_sql import local_frame, quoted, quoted_list
from tallymark.errors import PlanError, TiedRows
from tallymark.model.plan import (
    CURRENT,
    FROM_BATCH,
    INCOMING,
    LABEL,
    TECHNICAL_COLUMNS,
    Append,
    Label,
    Merge,
    Plan,
    ReplaceSlices,
    ReplaceTable,
)
from tallymark.model.receipt import Counts

_CHANGING = (Label.INSERT, Label.UPDATE, Label.DELETE)


@dataclass(frozen=True)
class Labelled:
    """The effect of a plan: `rows` are the plan's columns and, for a Merge, LABEL."""

    spark: SparkSession
    plan: Plan
    rows: DataFrame
    current: DataFrame
    counts: Counts
    table_rows: int

    def changed_rows(self, *labels: Label) -> DataFrame:
        wanted = [str(label) for label in labels]
        return self.rows.where(F.col(LABEL).isin(wanted)).drop(LABEL, FROM_BATCH)

    def sql(self) -> str:
        match self.plan.shape:
            case Merge(labels=labels):
                return labels.sql(dialect="spark", pretty=True)
            case Append() | ReplaceTable() | ReplaceSlices():
                return f"SELECT {quoted_list([c.name for c in self.plan.columns])} FROM {INCOMING}"

    def samples(self, limit: int) -> list[SampleRow]:
        match self.plan.shape:
            case Merge(keys=keys):
                return [sample for label in _CHANGING for sample in self._merge_samples(label, keys, limit)]
            case Append() | ReplaceTable() | ReplaceSlices():
                rows = self.rows.limit(limit).collect()
                return [SampleRow(Label.INSERT, None, row.asDict(recursive=True)) for row in rows]

    def _merge_samples(self, label: Label, keys: tuple[str, ...], limit: int) -> list[SampleRow]:
        after = self.changed_rows(label).orderBy(*(F.col(quoted(key)) for key in keys)).limit(limit)
        if label is Label.INSERT:
            return [SampleRow(label, None, row.asDict(recursive=True)) for row in after.collect()]
        pairs = (
            after.alias("a")
            .join(self.current.alias("b"), _same_key("a", "b", keys))
            .select(F.struct("a.*").alias("after"), F.struct("b.*").alias("before"))
            .limit(limit)
        )
        return [
            SampleRow(
                label,
                row["before"].asDict(recursive=True),
                None if label is Label.DELETE else row["after"].asDict(recursive=True),
            )
            for row in pairs.collect()
        ]


@contextmanager
def labelled(
    spark: SparkSession, plan: Plan, incoming: DataFrame, current: DataFrame | None
) -> Iterator[Labelled]:
    """`current` is the table at the plan's pinned version, or None when the load creates it."""
    table = current if current is not None else _no_rows(spark, plan)
    match plan.shape:
        case Merge() as merge:
            _refuse_ties(spark, merge, incoming, plan.table)
            with _cached(_label_rows(spark, merge, incoming, table)) as rows:
                counts = _merge_counts(rows)
                _refuse_target_duplicates(plan, merge, counts, incoming, table)
                yield Labelled(spark, plan, rows, table, counts, _rows_for_guard(plan, table))
        case Append():
            rows = _written_rows(plan, incoming)
            total = rows.count()
            yield Labelled(spark, plan, rows, table, Counts(inserted=total, total=total), 0)
        case ReplaceTable():
            rows = _written_rows(plan, incoming)
            total, old = rows.count(), table.count() if current is not None else 0
            yield Labelled(spark, plan, rows, table, Counts(inserted=total, deleted=old, total=total), old)
        case ReplaceSlices(columns=columns):
            rows = _written_rows(plan, incoming)
            total = rows.count()
            gone = table.alias("c").join(
                rows.select(*map(quoted, columns)).distinct().alias("i"),
                _same_key("c", "i", columns),
                "left_semi",
            )
            counts = Counts(inserted=total, deleted=gone.count(), total=total)
            yield Labelled(spark, plan, rows, table, counts, _rows_for_guard(plan, table))


def _label_rows(spark: SparkSession, merge: Merge, incoming: DataFrame, current: DataFrame) -> DataFrame:
    incoming.createOrReplaceTempView(INCOMING)
    current.createOrReplaceTempView(CURRENT)
    return spark.sql(merge.labels.sql(dialect="spark"))


def _merge_counts(rows: DataFrame) -> Counts:
    by_label = {
        (row[LABEL], row[FROM_BATCH]): row["count"]
        for row in rows.groupBy(LABEL, FROM_BATCH).count().collect()
    }

    def of(label: Label) -> int:
        return int(sum(number for (name, _), number in by_label.items() if name == label))

    return Counts(
        inserted=of(Label.INSERT),
        updated=of(Label.UPDATE),
        deleted=of(Label.DELETE),
        unchanged=of(Label.UNCHANGED),
        skipped=of(Label.SKIP),
        total=int(sum(number for (_, from_batch), number in by_label.items() if from_batch)),
    )


def _refuse_ties(spark: SparkSession, merge: Merge, incoming: DataFrame, table: str) -> None:
    if merge.ties is None:
        return
    incoming.createOrReplaceTempView(INCOMING)
    tied = [row.asDict() for row in spark.sql(merge.ties.sql(dialect="spark")).limit(5).collect()]
    if tied:
        keys = "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in tied)
        raise TiedRows(
            f"{table}: rows of one file differ but are equal in key and declared order: {keys}",
            hint="declare a watermark_column that tells them apart, or deliver one row for each key and time",
            facts={"keys": tied},
        )


def _refuse_target_duplicates(
    plan: Plan, merge: Merge, counts: Counts, incoming: DataFrame, current: DataFrame
) -> None:
    """A key that the table holds twice matches twice, so more rows are labelled than came in.
    Writing on would update both and report wrong counts."""
    if counts.total == incoming.count():
        return
    names = [quoted(key) for key in merge.keys]
    twice = current.join(incoming.select(*names).distinct(), on=list(merge.keys)).groupBy(*names).count()
    sample = [row.asDict() for row in twice.where("`count` > 1").limit(5).collect()]
    keys = "; ".join(", ".join(f"{k}={v}" for k, v in row.items() if k != "count") for row in sample)
    raise PlanError(
        f"{plan.table}: the table holds several rows for one unique_key: {keys}",
        hint="remove the duplicates from the table, or choose a unique_key that is unique in it",
        facts={"keys": sample},
    )


def _rows_for_guard(plan: Plan, current: DataFrame) -> int:
    """Counting the table is not free: only a guarded plan pays for it."""
    return current.count() if plan.max_delete_fraction is not None and plan.current is not None else 0


def _written_rows(plan: Plan, incoming: DataFrame) -> DataFrame:
    """The plan's columns in the table's order; what the batch lacks is NULL."""
    given = [name for name in incoming.columns if name not in TECHNICAL_COLUMNS]
    by_name = {name.casefold(): name for name in given}
    selected = []
    for column in plan.columns:
        source = by_name.get(column.name.casefold())
        value = F.lit(None) if source is None else F.col(quoted(source))
        selected.append(value.cast(column.type).alias(column.name))
    return incoming.select(*selected)


def _no_rows(spark: SparkSession, plan: Plan) -> DataFrame:
    schema = ", ".join(f"{quoted(column.name)} {column.type}" for column in plan.columns)
    return local_frame(spark, [], schema)


def _same_key(left: str, right: str, keys: tuple[str, ...]) -> SparkColumn:
    condition = F.lit(True)
    for key in keys:
        condition = condition & F.col(f"{left}.{quoted(key)}").eqNullSafe(F.col(f"{right}.{quoted(key)}"))
    return condition


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist()
    try:
        yield frame
    finally:
        with suppress(Exception):  # after a commit, failing to free memory must not look like a failed load
            frame.unpersist()
