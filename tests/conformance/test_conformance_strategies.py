"""Every strategy, on every destination, against the oracle: the same rows and the same counts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from bench import Bench
from orders import APPEND, DAY1, INCREMENTAL, ORDERS, PAIR, REFRESH, UPSERT, order

from oracle import Row, apply_batch, canonical
from tallymark.model.settings import MergeSettings


@dataclass(frozen=True)
class Case:
    name: str
    settings: MergeSettings
    batches: list[list[Row]]


CASES = [
    Case("append keeps duplicates", APPEND, [DAY1, [order(1), order(1)], []]),
    Case("refresh replaces, and empties with nothing", REFRESH, [DAY1, [order(9), order(9)], []]),
    Case("upsert into nothing, by the last of a key", UPSERT, [[], [order(1, "x"), order(1, "y")], [order(1, "z"), order(1, "y")]]),
    Case("upsert to and from NULL", UPSERT, [DAY1, [order(1, None), order(2, "a", None)], DAY1]),
    Case("upsert by two keys", PAIR, [DAY1, [order(1, "a", "2.00"), order(1, "b")]]),
    Case("incremental keeps what is newer", INCREMENTAL, [[order(1, "new", day=5), order(1, "old", day=2)], [order(1, "older", day=4)], [order(1, "equal", day=5)]]),
    Case("a missing watermark is the oldest", INCREMENTAL, [[order(1, "a", day=None)], [order(1, "b")], [order(1, "c", day=None)]]),
]  # fmt: skip


@pytest.mark.core
def test_a_history_of_batches(bench: Bench) -> None:
    """One sequence that meets every way of writing."""
    history = [
        DAY1,
        [order(4), order(1, "b")],
        DAY1,
        [order(9)],
        [order(9), order(1, None), order(2, "z", None)],
    ]
    check(bench, UPSERT, history)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_and_counts_are_those_of_the_oracle(bench: Bench, case: Case) -> None:
    check(bench, case.settings, case.batches)


def check(bench: Bench, settings: MergeSettings, batches: list[list[Row]]) -> None:
    table: list[Row] = []
    for batch in batches:
        table, expected = apply_batch(table, batch, settings)
        assert bench.load(settings, ORDERS, batch) == expected
        assert canonical(bench.rows()) == canonical(table)
