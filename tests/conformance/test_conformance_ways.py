"""Each way of writing, whether it is the cheapest or not: the same rows and the same counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench import MANY, Bench
from enrolled import DESTINATIONS, Surroundings
from orders import BY_TIME, DAY1, ORDERS, UPSERT, order
from pyspark.sql import SparkSession
from test_conformance_strategies import comparable, load_both

from oracle import Oracle, Row, canonical
from tallymark.destinations import delta_write
from tallymark.destinations.contract import Way
from tallymark.destinations.delta_ways import possible_ways
from tallymark.destinations.spark_labels import Labelled
from tallymark.model.plan import KeyRange, Plan
from tallymark.model.settings import MergeSettings

HISTORIES = [
    (UPSERT, [DAY1, [order(4), order(1, "b")], [order(9)], [order(9), order(1, "c", None), order(3)]]),
    (BY_TIME, [DAY1, [order(1, "b", day=5), order(7)], [order(1, "late", day=3), order(8)]]),
]


@pytest.mark.parametrize(("settings", "batches"), HISTORIES, ids=lambda given: getattr(given, "strategy", ""))
@pytest.mark.parametrize(
    "way", ["merge", *(["replace rows"] if MANY else [])]
)  # the cheapest runs everywhere
def test_a_way(
    way: str,
    settings: MergeSettings,
    batches: list[list[Row]],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def choose(labelled: Labelled) -> Way:
        possible = possible_ways(labelled)
        return next((other for other in possible if other.name == way), possible[0])

    monkeypatch.setattr(delta_write, "choose_way", choose)
    bench, oracle = (
        Bench(spark, DESTINATIONS["delta"].make(Surroundings(spark, tmp_path, str))),
        Oracle(settings),
    )
    for batch in batches:
        _tell_ranges(bench, batch, monkeypatch)
        load_both(bench, oracle, ORDERS, batch)
    assert canonical(bench.rows()) == canonical(comparable(oracle.rows))
    assert way in {commit.way for commit in bench.commits}


def _tell_ranges(bench: Bench, batch: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the checks do, which a Bench leaves out."""
    ids = [row["id"] for row in batch]
    ranges = (KeyRange("id", f"{min(ids)}L", f"{max(ids)}L"),)

    def plan(*args: object, **kwargs: object) -> Plan:
        return replace(Bench.plan(bench, *args, **kwargs), key_ranges=ranges)  # type: ignore[arg-type]

    monkeypatch.setattr(bench, "plan", plan)
