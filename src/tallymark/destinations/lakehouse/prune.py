"""The rows of the table and the tombstones that a batch speaks of, and no more columns than it takes.

1. Files that cannot hold the batch's keys are not opened: its key ranges are said as literals.
2. Rows with its keys are found by a small side that every worker gets whole: without it, Spark would sort the
   table for each join with it.
3. Of a large table, the columns of the plan's glance are read first. Rows that they do not tell enough of are
   read whole, in a second look; in most batches there are none.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.destinations.lakehouse.relations import Relations, written_rows
from tallymark.model.plan import CURRENT, Glance, Merge, Plan
from tallymark.spark.sql import quoted

_LOW, _HIGH, _OPEN = "_tm_low", "_tm_high", "_tm_open"


def near(relations: Relations, merge: Merge, *, large_table: bool) -> Relations:
    if not merge.within or not relations.is_small or merge.anew or relations.plan.creates_table:
        return relations
    ranges = key_ranges(relations.plan, merge)
    table = relations.current.where(ranges) if ranges else relations.current
    if large_table and merge.glance is not None:
        rows = _at_a_glance(relations, merge, merge.glance, table)
    else:
        rows = _with_keys_of(relations.incoming, table, merge)
    if CURRENT in relations.read_several_times:
        rows = relations.kept(rows)
    gone = relations.tombstones
    if gone is not None:
        gone = _with_keys_of(relations.incoming, gone, merge)
    return replace(relations, current=rows, current_view="tm_near", tombstones=gone)


def key_ranges(plan: Plan, merge: Merge, alias: str = "") -> str:
    """Where the batch's keys are, said as literals, so that files of the table which cannot hold them are not
    even opened. Empty: unknown, or rows with other keys matter too."""
    within = {name.casefold() for name in merge.within}
    return " AND ".join(
        f"{alias}{quoted(found.column)} BETWEEN {found.low} AND {found.high}"
        for found in plan.key_ranges
        if found.column.casefold() in within
    )


def _with_keys_of(batch: DataFrame, table: DataFrame, merge: Merge) -> DataFrame:
    names = [quoted(name) for name in merge.within]
    keys = F.broadcast(batch.select(*names)).alias("k")
    return table.alias("c").join(keys, F.expr(_same(names)), "left_semi")


def _at_a_glance(relations: Relations, merge: Merge, glance: Glance, table: DataFrame) -> DataFrame:
    """Open is a row that may equal one of the batch: its value is between the least and the greatest that the
    batch has for its key, or one of them is NULL."""
    keys, telling = [quoted(name) for name in merge.within], quoted(glance.telling)
    values = [F.expr(f"min({telling}) AS {_LOW}"), F.expr(f"max({telling}) AS {_HIGH}")]
    batch = F.broadcast(relations.incoming.groupBy(*keys).agg(*values)).alias("k")
    read = {name.casefold(): quoted(name) for name in (*merge.within, glance.telling, *glance.beside)}
    seen = relations.kept(
        table.select(*read.values())
        .alias("c")
        .join(batch, F.expr(_same(keys)))
        .selectExpr(
            *(f"c.{name}" for name in read.values()),
            f"coalesce(c.{telling} BETWEEN k.{_LOW} AND k.{_HIGH}, true) AS {_OPEN}",
        )
    )
    assert relations.plan.current is not None  # noqa: S101
    told = written_rows(relations.plan.current.columns, seen.where(f"NOT {_OPEN}"))
    if not seen.agg(F.count_if(_OPEN)).collect()[0][0]:
        return told
    return told.unionByName(_with_keys_of(seen.where(_OPEN), table, merge))


def _same(names: list[str]) -> str:
    return " AND ".join(f"c.{name} = k.{name}" for name in names)
