"""Write shapes that no strategy uses yet: the contract carries them, and every destination applies them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlglot
from bench import Bench
from orders import APPEND, DAY1, ORDERS, UPSERT, order
from sqlglot import exp

from oracle import Row, canonical
from tallymark.model.plan import Duplicates, Merge, ReplaceSlices, Shape
from tallymark.model.receipt import Counts


def load_shape(bench: Bench, shape: Shape, rows: list[Row]) -> Counts:
    bench.sequence += 1
    plan = replace(bench.plan(APPEND, ORDERS), shape=shape)
    with bench.destination.prepare(plan, bench.incoming(ORDERS, rows)) as prepared:
        commit = prepared.commit(bench.marker(f"shape-{bench.sequence}", prepared.counts))
        assert commit.disagreement == ""
        return prepared.counts


def parsed(text: str) -> exp.Query:
    query = sqlglot.parse_one(text)
    assert isinstance(query, exp.Query)
    return query


def merge_of(labels: exp.Query, *, whole_table: bool = False, repair: bool = True) -> Merge:
    keys = parsed(
        "SELECT id, COUNT(*) AS _tm_copies FROM current WHERE id IS NOT NULL GROUP BY id HAVING COUNT(*) > 1"
    )
    survivors = parsed(
        """
        SELECT id, name, amount, at FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY name DESC NULLS LAST) AS _tm_copy FROM current
        ) AS ranked WHERE _tm_copy = 1 OR id IS NULL
        """
    )
    return Merge(("id",), labels, Duplicates(keys, survivors, whole_table, repair))


@pytest.mark.core
def test_slices_are_replaced_and_the_rest_stays(bench: Bench) -> None:
    by_name = ReplaceSlices(("name",))
    first = [order(1, "a"), order(2, "a"), order(3, "b"), order(4, None)]
    assert load_shape(bench, by_name, first) == Counts(inserted=4, total=4)
    assert load_shape(bench, by_name, [order(9, "a")]) == Counts(inserted=1, deleted=2, total=1)
    assert load_shape(bench, by_name, [order(8, None)]) == Counts(inserted=1, deleted=1, total=1)
    assert canonical(bench.rows()) == canonical([order(9, "a"), order(3, "b"), order(8, None)])


@pytest.mark.core
def test_one_merge_inserts_updates_and_deletes(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    query = parsed(
        """
        SELECT id, name, amount, at, 'delete' AS _tm_label, FALSE AS _tm_from_batch FROM current WHERE id = 1
        UNION ALL
        SELECT id, name, amount, at, CASE WHEN id = 2 THEN 'update' ELSE 'insert' END, TRUE FROM incoming
        """
    )
    counts = load_shape(bench, merge_of(query), [order(2, "b"), order(5)])
    assert counts == Counts(inserted=1, updated=1, deleted=1, total=2)
    assert canonical(bench.rows()) == canonical([order(2, "b"), order(3), order(5)])
