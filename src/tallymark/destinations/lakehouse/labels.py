"""Labels the rows of a batch in Spark, for every destination whose tables Spark writes.

1. The batch and the table become the relations that the queries read.
2. Labels are computed once and cached; everything that must be known of them is counted in one job.
3. What a refusal finds stops the load. Duplicates in the table stop it too, or are repaired: the rows are
   labelled again, against a table in which one row is left of each match.
4. As many rows must be labelled as came in, or nothing may be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.contract import DuplicatesFound, SampleRow
from tallymark.destinations.lakehouse.relations import (
    LabelCounts,
    Relations,
    count_labels,
    count_rows,
    duplicate_rows,
    given_rows,
    keeps_rows,
    pruned,
    same_match,
    spark_text,
    written_rows,
)
from tallymark.errors import CountsDoNotBalance, PlanError, TiedRows
from tallymark.model.plan import (
    FROM_BATCH,
    INCOMING,
    LABEL,
    Append,
    Label,
    Merge,
    Plan,
    ReplaceSlices,
    ReplaceTable,
)
from tallymark.model.receipt import Counts
from tallymark.model.types import literals, quoted, quoted_list
from tallymark.spark.frames import no_rows

_CHANGING = (Label.INSERT, Label.UPDATE, Label.CLOSE, Label.DELETE)
_SAMPLE = 5
MATCHES = "_tm_matches"  # in the source of a MERGE: the row finds its row in the table


@dataclass(frozen=True)
class Repair:
    """Matches that the table holds several times. Both frames are cached."""

    keys: DataFrame  # the match columns
    survivors: DataFrame  # the row that is left of each, as the table has it
    found: DuplicatesFound
    updated: int = 0  # of the matches, those whose row the batch replaces or closes anyway
    deleted: int = 0  # those that the load deletes anyway


@dataclass(frozen=True)
class Labelled:
    """The effect of a plan: `rows` are the plan's columns and, for a Merge, LABEL and FROM_BATCH."""

    spark: SparkSession
    plan: Plan
    rows: DataFrame
    current: DataFrame
    counts: Counts
    table_rows: int = 0
    null_matches: int = 0  # labels whose row in the table only a null-safe comparison finds
    repair: Repair | None = None
    tombstones: DataFrame | None = None  # None if the batch adds none
    are_rows: bool = False  # `rows` is checkpointed, so it is the same each time

    def changed_rows(self, *labels: Label) -> DataFrame:
        return self.rows.where(f"{LABEL} IN ({literals(labels)})").drop(LABEL, FROM_BATCH)

    def sql(self) -> str:
        match self.plan.shape:
            case Merge(labels=labels):
                return spark_text(labels, self.plan, pretty=True)
            case Append() | ReplaceTable() | ReplaceSlices():
                return f"SELECT {quoted_list([c.name for c in self.plan.columns])} FROM {INCOMING}"

    def samples(self, limit: int) -> list[SampleRow]:
        match self.plan.shape:
            case Merge(match=match):
                return [sample for label in _CHANGING for sample in self._merge_samples(label, match, limit)]
            case Append() | ReplaceTable() | ReplaceSlices():
                rows = self.rows.limit(limit).collect()
                return [SampleRow(Label.INSERT, None, row.asDict(recursive=True)) for row in rows]

    def _merge_samples(self, label: Label, match: tuple[str, ...], limit: int) -> list[SampleRow]:
        after = self.changed_rows(label).orderBy(*(F.col(quoted(name)) for name in match)).limit(limit)
        if label is Label.INSERT:
            return [SampleRow(label, None, row.asDict(recursive=True)) for row in after.collect()]
        pairs = (
            after.alias("a")
            .join(self.current.alias("b"), same_match("a", "b", match))
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
    spark: SparkSession,
    plan: Plan,
    incoming: DataFrame,
    current: DataFrame | None,
    tombstones: DataFrame | None = None,
    incoming_rows: int | None = None,
    *,
    large_table: bool = False,
) -> Iterator[Labelled]:
    """`current` is the table at the plan's version, or None when the load creates it. For a
    `large_table`, reading all its columns takes longer than one more query."""
    removed = current if isinstance(plan.shape, Merge) and plan.shape.rebuilds else None
    table = current if current is not None and removed is None else no_rows(spark, plan.columns)
    with ExitStack() as cache:
        relations = Relations(spark, plan, incoming, table, tombstones, incoming_rows, cache=cache)
        match plan.shape:
            case Merge() as merge:
                yield _labelled_merge(relations, merge, removed, large_table=large_table)
            case Append() | ReplaceTable() | ReplaceSlices():
                yield _whole_rows(relations)


def _whole_rows(relations: Relations) -> Labelled:
    """Every row of the batch is added; what it replaces is removed."""
    plan, table = relations.plan, relations.current
    rows = written_rows(plan.columns, relations.incoming)
    removed: DataFrame | None = None
    match plan.shape:
        case ReplaceTable():
            removed = table
        case ReplaceSlices(columns=columns):
            slices = rows.select(*map(quoted, columns)).distinct()
            removed = table.alias("c").join(slices.alias("i"), same_match("c", "i", columns), "left_semi")
    if plan.creates_table:
        removed = None
    if relations.incoming_rows is not None and removed is None and not _counts_table(plan):
        seen = LabelCounts(relations.incoming_rows, 0)
    else:
        seen = count_rows(relations, rows, count_table=_counts_table(plan), removed=removed)
    counts = Counts(inserted=seen.total, deleted=seen.removed, total=seen.total)
    return Labelled(relations.spark, plan, rows, table, counts, seen.table_rows)


def _labelled_merge(
    relations: Relations, merge: Merge, removed: DataFrame | None, *, large_table: bool
) -> Labelled:
    plan = relations.plan
    relations = replace(relations, incoming=given_rows(plan, relations.incoming))
    look_everywhere = merge.duplicates.whole_table and not (plan.creates_table or merge.rebuilds)
    affected = pruned(relations, merge, large_table=large_table)
    rows = affected.labels(merge)
    # Counted, then written.
    gone = affected.kept(affected.run(merge.tombstones.new)) if merge.tombstones else None
    seen = count_labels(
        relations,
        merge,
        rows,
        gone,
        count_table=_counts_table(plan),
        find_duplicates=look_everywhere,
        removed=removed,
    )
    _refuse(affected, merge, seen)
    repair = None
    if seen.duplicate_keys or seen.labelled > seen.total:
        repair = _find_duplicates(relations, merge, seen)
        relations = _without_duplicates(relations, merge, repair)
        rows = relations.labels(merge)
        table_rows = seen.table_rows
        seen = count_labels(relations, merge, rows, gone, count_table=False, find_duplicates=False)
        _refuse(relations, merge, seen)
        seen = replace(seen, table_rows=table_rows)
        repair = _with_overlap(repair, merge, rows)
    if seen.labelled != seen.total:
        raise _unbalanced(plan, seen)
    return Labelled(
        relations.spark,
        plan,
        rows,
        relations.current,
        _merge_counts(seen, repair),
        seen.table_rows,
        seen.null_matches,
        repair,
        gone if seen.new_tombstones else None,
        keeps_rows(relations.spark, relations.incoming_rows),
    )


def _merge_counts(seen: LabelCounts, repair: Repair | None) -> Counts:
    return Counts(
        inserted=seen.of(Label.INSERT),
        updated=seen.of(Label.UPDATE),
        closed=seen.of(Label.CLOSE),
        deleted=seen.of(Label.DELETE) + seen.removed + (repair.found.rows if repair is not None else 0),
        unchanged=seen.of(Label.UNCHANGED),
        skipped=seen.of(Label.SKIP),
        total=seen.total,
    )


def _refuse(relations: Relations, merge: Merge, seen: LabelCounts) -> None:
    for refusal in merge.refusals:
        if refusal.shows_as is not None and not seen.of(refusal.shows_as):
            continue
        found = [row.asDict() for row in relations.run(refusal.found).limit(_SAMPLE).collect()]
        if found:
            raise TiedRows(
                f"{relations.plan.table}: {refusal.message}: {_named(found)}",
                hint=refusal.hint,
                facts={"keys": found},
            )


def _find_duplicates(relations: Relations, merge: Merge, seen: LabelCounts) -> Repair:
    plan = relations.plan
    keys = relations.kept(relations.run(merge.duplicates.keys))
    number, copies = duplicate_rows(keys)
    if number == 0:
        raise _unbalanced(plan, seen)
    keys = keys.select(*map(quoted, merge.match))
    sample = tuple(row.asDict() for row in keys.orderBy(*map(quoted, merge.match)).limit(_SAMPLE).collect())
    found = DuplicatesFound(rows=copies - number, keys=number, sample=sample)
    if not merge.duplicates.repair:
        raise PlanError(
            f"{plan.table}: the table holds several rows for one unique_key: {number} keys in {copies} rows, "
            f"such as {_named(sample)}",
            hint="set `on_target_duplicates: repair`, or remove the duplicates from the table, or choose a "
            "unique_key that is unique in it",
            facts={"keys": list(sample), "rows": found.rows},
        )
    survivors = relations.run(merge.duplicates.survivors).alias("s")
    survivors = survivors.join(keys.alias("k"), same_match("s", "k", merge.match), "left_semi")
    return Repair(keys, relations.kept(survivors), found)


def _without_duplicates(relations: Relations, merge: Merge, repair: Repair) -> Relations:
    others = relations.current.alias("c").join(
        repair.keys.alias("k"), same_match("c", "k", merge.match), "left_anti"
    )
    return replace(
        relations, current=others.unionByName(repair.survivors), current_view="tm_without_duplicates"
    )


def _with_overlap(repair: Repair, merge: Merge, rows: DataFrame) -> Repair:
    touched = rows.alias("r").join(repair.keys.alias("k"), same_match("r", "k", merge.match), "left_semi")
    by_label = {row[LABEL]: int(row["count"]) for row in touched.groupBy(LABEL).count().collect()}
    return replace(
        repair,
        updated=by_label.get(Label.UPDATE, 0) + by_label.get(Label.CLOSE, 0),
        deleted=by_label.get(Label.DELETE, 0),
    )


def _unbalanced(plan: Plan, seen: LabelCounts) -> CountsDoNotBalance:
    return CountsDoNotBalance(
        f"{plan.table}: {seen.total} rows came in, {seen.labelled} were labelled; nothing was written",
        facts={"total": seen.total, "labelled": seen.labelled},
    )


def _named(rows: list[dict[str, object]] | tuple[dict[str, object], ...]) -> str:
    return "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in rows)


def _counts_table(plan: Plan) -> bool:
    """Counting the table is not free: only a guarded plan pays for it."""
    return plan.max_delete_fraction is not None and not plan.creates_table


def merge_source(labelled: Labelled) -> DataFrame:
    """The plan's columns, LABEL and MATCHES. A row with MATCHES finds its row in the table, one without never
    does.

    A match that the table holds several times is deleted with all its rows, by one source row that matches,
    and inserted again by one that does not: one source row may delete many rows, but never two may change
    one."""
    assert isinstance(labelled.plan.shape, Merge)  # noqa: S101
    match = labelled.plan.shape.match
    changing = labelled.rows.where(F.col(LABEL).isin([str(label) for label in _CHANGING])).drop(FROM_BATCH)
    if labelled.null_matches:
        changing = _one_delete_each(changing, match)
    source = changing.withColumn(MATCHES, F.col(LABEL) != str(Label.INSERT))
    return source if labelled.repair is None else _repaired(labelled, labelled.repair, source, match)


def _one_delete_each(rows: DataFrame, match: tuple[str, ...]) -> DataFrame:
    """Rows with a NULL in their key cannot be told apart: each delete would find all of them."""
    deletes = F.col(LABEL) == str(Label.DELETE)
    return rows.where(~deletes).unionByName(rows.where(deletes).dropDuplicates(list(match)))


def _repaired(labelled: Labelled, repair: Repair, source: DataFrame, match: tuple[str, ...]) -> DataFrame:
    columns = labelled.plan.columns
    found = F.col(MATCHES)
    touched = _among(source.where(found), repair.keys, match, "left_semi")
    others = source.where(~found).unionByName(_among(source.where(found), repair.keys, match, "left_anti"))
    gone = _labelled(written_rows(columns, repair.keys), Label.DELETE, matches=True)
    replaced = touched.where(F.col(LABEL) != str(Label.DELETE)).drop(LABEL, MATCHES)
    left = written_rows(columns, _among(repair.survivors, touched, match, "left_anti"))
    back = _labelled(replaced.unionByName(left), Label.INSERT, matches=False)
    return others.unionByName(gone).unionByName(back)


def _among(rows: DataFrame, others: DataFrame, match: tuple[str, ...], how: str) -> DataFrame:
    keys = others.select(*map(quoted, match))
    return rows.alias("r").join(keys.alias("k"), same_match("r", "k", match), how)


def _labelled(rows: DataFrame, label: Label, *, matches: bool) -> DataFrame:
    return rows.withColumns({LABEL: F.lit(str(label)), MATCHES: F.lit(matches)})
