"""Write shapes that no strategy uses yet: the contract carries them, and every destination applies them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlglot
from bench import Bench
from orders import APPEND, DAY1, ORDERS, UPSERT, order
from sqlglot import exp

from oracle import Row, canonical
from tallymark.model.plan import Merge, ReplaceSlices, Shape
from tallymark.model.receipt import Counts


def load_shape(bench: Bench, shape: Shape, rows: list[Row]) -> Counts:
    bench.sequence += 1
    plan = replace(bench.plan(APPEND, ORDERS), shape=shape)
    with bench.destination.prepare(plan, bench.incoming(ORDERS, rows)) as prepared:
        commit = prepared.commit(bench.marker(f"shape-{bench.sequence}", prepared.counts))
        assert commit.disagreement == ""
        return prepared.counts


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
    query = sqlglot.parse_one(
        """
        SELECT id, name, amount, at, 'delete' AS _tm_label, FALSE AS _tm_from_batch FROM current WHERE id = 1
        UNION ALL
        SELECT id, name, amount, at, CASE WHEN id = 2 THEN 'update' ELSE 'insert' END, TRUE FROM incoming
        """
    )
    assert isinstance(query, exp.Query)
    counts = load_shape(bench, Merge(("id",), query), [order(2, "b"), order(5)])
    assert counts == Counts(inserted=1, updated=1, deleted=1, total=2)
    assert canonical(bench.rows()) == canonical([order(2, "b"), order(3), order(5)])
