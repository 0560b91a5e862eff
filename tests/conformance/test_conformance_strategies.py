"""Every strategy, on every destination, against the oracle: the same rows and the same counts."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from conformance.bench import Bench, comparable, load_both
from conformance.orders import (
    APPEND,
    BY_TIME,
    CDC,
    CLOSING,
    DAY1,
    DEDUPLICATE,
    DELETE_INSERT,
    FEED,
    FULL_MERGE,
    INCREMENTAL,
    INSERT,
    ORDERS,
    PAIR,
    PARTIAL,
    REFRESH,
    SNAPSHOT,
    UNORDERED,
    UPDATE,
    UPSERT,
    event,
    order,
)
from driver_rows import MANY
from oracle import Oracle, Row, canonical
from tallymark.model.settings import MergeSettings


@dataclass(frozen=True)
class Case:
    name: str
    settings: MergeSettings
    batches: list[list[Row]]
    schema: str = ORDERS
    shows_more_elsewhere: bool = False  # than on Delta, where the mixed batches have this strategy too


CASES = [
    Case("append keeps duplicates", APPEND, [DAY1, [order(1), order(1)], []], shows_more_elsewhere=True),
    Case("refresh replaces, and empties with nothing", REFRESH, [DAY1, [order(9), order(9)], []], shows_more_elsewhere=True),
    Case("insert adds what is new and leaves the rest", INSERT, [[order(1)], [order(1, "b"), order(2), order(2, "b"), order(1)]], shows_more_elsewhere=True),
    Case("upsert into nothing, by the last of a key", UPSERT, [[], [order(1, "x"), order(1, "y")], [order(1, "z"), order(1, "y")]], shows_more_elsewhere=True),
    Case("upsert to and from NULL", UPSERT, [DAY1, [order(1, None), order(2, "a", None)], DAY1], shows_more_elsewhere=True),
    Case("upsert without comparing", replace(UPSERT, skip_unchanged=False), [DAY1, [order(1), order(2, "b"), order(9)], DAY1], shows_more_elsewhere=True),
    Case("full merge without comparing", replace(FULL_MERGE, skip_unchanged=False), [DAY1, [order(2), order(4)]], shows_more_elsewhere=True),
    Case("upsert by two keys", PAIR, [DAY1, [order(1, "a", "2.00"), order(1, "b")]], shows_more_elsewhere=True),
    Case("incremental keeps what is newer", INCREMENTAL, [[order(1, "new", day=5), order(1, "old", day=2)], [order(1, "older", day=4)], [order(1, "equal", day=5)]], shows_more_elsewhere=True),
    Case("a missing watermark is the oldest", INCREMENTAL, [[order(1, "a", day=None)], [order(1, "b")], [order(1, "c", day=None)]], shows_more_elsewhere=True),
    Case("deduplicate keeps the last of batch and table", DEDUPLICATE, [[order(1, "new", day=5), order(1, "old", day=2)], [order(1, "late", day=3), order(2)]], shows_more_elsewhere=True),
    Case("full merge deletes what is absent", FULL_MERGE, [DAY1, [order(2, "b"), order(4)], []], shows_more_elsewhere=True),
    Case("snapshot replaces whole partitions", SNAPSHOT, [[order(1), order(2), order(3, "b"), order(4, None)], [order(9)], [order(8, None)], []], shows_more_elsewhere=True),
    Case("versions by their time", BY_TIME, [[order(1), order(1, "b", day=5), order(2)], [order(1, "late", day=3), order(2), order(2, "a", day=9)], [order(1, "late", day=5)]], shows_more_elsewhere=True),
    Case("versions of full snapshots", CLOSING, [DAY1, [order(1), order(2, "b")], [order(1), order(3)]], shows_more_elsewhere=True),
    Case("changes by sequence", CDC, [[event("d", 9, day=9), event("i", 1), event("U", 1, "b", day=3), event("i", 2)], [event("u", 1, "late", day=2), event("i", 9, day=4), event("d", 2, day=5)], [event("u", 2, day=4), event("i", 2, "again", day=6)]], FEED),
    Case("changes with a truncate", CDC, [[event("i", 1), event("i", 2)], [event("i", 3, day=2), {"op": "t", "at": datetime(2026, 11, 4)}, event("i", 2, "b", day=5)], [event("i", 3, day=3)]], FEED, shows_more_elsewhere=True),
    Case("changes by arrival", UNORDERED, [[event("C", 1), event("delete", 1), event("r", 1, "b")], [event("update", 1, "c"), event("D", 2)]], FEED, shows_more_elsewhere=True),
    Case("changes that carry only what changed", PARTIAL, [[event("i", 1, "a", "1.00"), event("u", 1, None, "2.00", day=2)], [event("u", 1, "b", None, day=3), event("u", 2, "x", None, day=3)], [event("d", 1, day=4), event("u", 1, None, "9.00", day=5)]], FEED, shows_more_elsewhere=True),
]  # fmt: skip


@pytest.mark.core("place", "settings")
def test_a_history_of_batches(bench: Bench) -> None:
    """One sequence that meets every way of writing."""
    history = [
        DAY1,
        [order(4), order(1, "b")],
        DAY1,
        [order(9)],
        [order(9), order(1, None), order(2, "z", None)],
    ]
    check(bench, Case("", UPSERT, history))


@pytest.mark.core("settings")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=[pytest.mark.slow_on("delta")] * c.shows_more_elsewhere)
        for c in CASES
    ],
)
def test_rows_and_counts_are_those_of_the_oracle(bench: Bench, case: Case) -> None:
    check(bench, case)


def check(bench: Bench, case: Case) -> None:
    oracle = Oracle(case.settings)
    for batch in case.batches:
        load_both(bench, oracle, case.schema, batch)
    assert canonical(bench.rows()) == canonical(comparable(oracle.rows))


MIXED = [UPSERT, APPEND, DEDUPLICATE, UPDATE, SNAPSHOT, INSERT, PAIR, INCREMENTAL, DELETE_INSERT, FULL_MERGE]


@pytest.mark.slow_on("delta")
def test_thirty_mixed_batches(bench: Bench) -> None:
    """Strategies take turns on one table, with everything that they leave behind for each other. On Delta,
    where a load takes seconds, `make property` runs all thirty."""
    chance = random.Random(30)
    rows: list[Row] = []
    is_quick = bench.destination.capabilities.locks_while_loading
    for number in range(30 if MANY or is_quick else 10):
        settings = REFRESH if number == 17 else MIXED[number % len(MIXED)]
        batch = [a_row(chance, number, position) for position in range(chance.randrange(0, 12))]
        oracle = Oracle(settings, rows)
        load_both(bench, oracle, ORDERS, batch)
        rows = oracle.rows
        if number % 5 == 4:
            assert canonical(bench.rows()) == canonical(rows)


def a_row(chance: random.Random, number: int, position: int) -> Row:
    """No two of one batch have the same time, so that every declared order decides."""
    day = datetime(2026, 11, 1) + timedelta(days=number // 3, minutes=chance.randrange(60) * 16 + position)
    return {
        "id": chance.randrange(8),
        "name": chance.choice(["a", "A", "ä", "", "it's"]),
        "amount": chance.choice([None, Decimal("0.10"), Decimal("-7.00"), Decimal("9999999999.99")]),
        "at": day,
    }


@pytest.mark.core("writing", "settings")
@pytest.mark.slow_on("delta")
def test_a_legacy_table_with_duplicates_is_repaired(bench: Bench) -> None:
    legacy = [order(1), order(1, "z"), order(2), order(3), order(3), order(3)]
    bench.load(APPEND, ORDERS, legacy)
    oracle = Oracle(UPSERT, legacy)
    assert load_both(bench, oracle, ORDERS, [order(1, "new"), order(4)]).deleted == 3
    load_both(bench, oracle, ORDERS, [order(2, "new")])
    assert canonical(bench.rows()) == canonical(oracle.rows)
