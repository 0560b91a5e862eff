"""A full refresh: the table becomes what its strategy makes of the batch in an empty one, in one commit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from conformance.bench import Bench
from conformance.orders import (
    APPEND,
    BY_TIME,
    CLOSING,
    DAY1,
    DEDUPLICATE,
    DELETE_INSERT,
    FULL_MERGE,
    INCREMENTAL,
    INSERT,
    ORDERS,
    SNAPSHOT,
    UPSERT,
    order,
)
from oracle import Oracle, Row, canonical
from tallymark.errors import TiedRows
from tallymark.model.settings import MergeSettings

pytestmark = pytest.mark.slow_on("delta", "duckdb")

BATCH = [order(1, "b", day=4), order(1, "late", day=2), order(7)]
QUICK = [BY_TIME, APPEND, INSERT, INCREMENTAL, DEDUPLICATE, FULL_MERGE, DELETE_INSERT, SNAPSHOT, CLOSING]


def test_the_table_becomes_the_batch(bench: Bench) -> None:
    check(bench, UPSERT)


@pytest.mark.parametrize("settings", QUICK, ids=lambda settings: settings.strategy)
def test_so_it_does_for_the_other_strategies(bench: Bench, settings: MergeSettings) -> None:
    check(bench, settings)


def check(bench: Bench, settings: MergeSettings) -> None:
    bench.load(settings, ORDERS, DAY1)
    held = len(bench.rows())
    counts = bench.load(settings, ORDERS, BATCH, rebuild=True)
    oracle = Oracle(settings)
    expected = oracle.load(BATCH, bench.as_of)
    assert counts == replace(expected, deleted=held)
    assert canonical(bench.rows()) == canonical(naive(oracle.rows))
    later = [order(7, "z", day=9)]
    assert bench.load(settings, ORDERS, later) == oracle.load(later, bench.as_of), "loads go on from there"
    assert canonical(bench.rows()) == canonical(naive(oracle.rows))


def test_columns_that_the_batch_lacks_are_empty_then(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    bench.load(UPSERT, "id bigint, name string", [{"id": 1, "name": "b"}], rebuild=True)
    assert bench.rows() == [{"id": 1, "name": "b", "amount": None, "at": None}]


def test_a_type_can_change_then(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    schema = ORDERS.replace("name string", "name bigint")
    bench.load(UPSERT, schema, [order(1) | {"name": 5}], rebuild=True)
    assert [row["name"] for row in bench.rows()] == [5]


def test_ties_are_refused_as_ever(bench: Bench) -> None:
    bench.load(INCREMENTAL, ORDERS, DAY1)
    with pytest.raises(TiedRows):
        bench.load(INCREMENTAL, ORDERS, [order(1, "b"), order(1, "c")], rebuild=True)
    assert len(bench.rows()) == 3


def naive(rows: list[Row]) -> list[Row]:
    """Times of loads are moments; tables give them without zone, in UTC."""
    return [
        {
            name: value.astimezone(UTC).replace(tzinfo=None)
            if isinstance(value, datetime) and value.tzinfo
            else value
            for name, value in row.items()
        }
        for row in rows
    ]
