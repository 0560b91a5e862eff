"""Reads of the table and its tombstones only the rows that a batch affects, by the plan's hints.

1. Files that cannot hold the batch's keys are not opened: the key ranges are literals in the query.
2. Rows with the batch's keys are found by a join with a broadcast side. Without it, Spark would sort the
   table for each join with it.
3. Of a large table, the columns of `hints.read_first` are read first. Rows whose label they do not decide are
   then read as a whole; in most batches there are none.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.destinations.lakehouse.relations import Relations, written_rows
from tallymark.model.plan import CURRENT, Merge, Plan, ReadFirst
from tallymark.model.types import quoted

_LOW, _HIGH, _UNDECIDED = "_tm_low", "_tm_high", "_tm_undecided"


def pruned(relations: Relations, merge: Merge, *, large_table: bool) -> Relations:
    hints = relations.plan.hints
    if not hints.batch_keys or not relations.is_small or merge.rebuilds or relations.plan.creates_table:
        return relations
    ranges = key_range_filter(relations.plan)
    table = relations.current.where(ranges) if ranges else relations.current
    if large_table and hints.read_first is not None:
        rows = _decided_first(relations, hints.read_first, table)
    else:
        rows = _with_keys_of(relations.incoming, table, hints.batch_keys)
    if CURRENT in relations.read_several_times:
        rows = relations.kept(rows)
    tombstones = relations.tombstones
    if tombstones is not None:
        tombstones = _with_keys_of(relations.incoming, tombstones, hints.batch_keys)
    return replace(relations, current=rows, current_view="tm_pruned", tombstones=tombstones)


def key_range_filter(plan: Plan, alias: str = "") -> str:
    """A condition with the ranges of the batch's keys as literals, so that files of the table that cannot
    hold them are not opened. Empty if the ranges are unknown, or if rows with other keys count too."""
    keys = {name.casefold() for name in plan.hints.batch_keys}
    return " AND ".join(
        f"{alias}{quoted(found.column)} BETWEEN {found.low} AND {found.high}"
        for found in plan.hints.key_ranges
        if found.column.casefold() in keys
    )


def _with_keys_of(batch: DataFrame, table: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    names = [quoted(name) for name in keys]
    wanted = F.broadcast(batch.select(*names)).alias("k")
    return table.alias("c").join(wanted, F.expr(_same(names)), "left_semi")


def _decided_first(relations: Relations, first: ReadFirst, table: DataFrame) -> DataFrame:
    """A row is undecided if it may equal one of the batch: its value is between the least and the greatest
    that the batch has for its key, or one of them is NULL."""
    batch_keys = relations.plan.hints.batch_keys
    keys, deciding = [quoted(name) for name in batch_keys], quoted(first.deciding)
    values = [F.expr(f"min({deciding}) AS {_LOW}"), F.expr(f"max({deciding}) AS {_HIGH}")]
    batch = F.broadcast(relations.incoming.groupBy(*keys).agg(*values)).alias("k")
    read = {name.casefold(): quoted(name) for name in (*batch_keys, first.deciding, *first.needed)}
    seen = relations.kept(
        table.select(*read.values())
        .alias("c")
        .join(batch, F.expr(_same(keys)))
        .selectExpr(
            *(f"c.{name}" for name in read.values()),
            f"coalesce(c.{deciding} BETWEEN k.{_LOW} AND k.{_HIGH}, true) AS {_UNDECIDED}",
        )
    )
    assert relations.plan.current is not None  # noqa: S101
    decided = written_rows(relations.plan.current.columns, seen.where(f"NOT {_UNDECIDED}"))
    if not seen.agg(F.count_if(_UNDECIDED)).collect()[0][0]:
        return decided
    return decided.unionByName(_with_keys_of(seen.where(_UNDECIDED), table, batch_keys))


def _same(names: list[str]) -> str:
    return " AND ".join(f"c.{name} = k.{name}" for name in names)
