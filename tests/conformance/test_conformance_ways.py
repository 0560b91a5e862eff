"""Each way of writing, whether it is the cheapest or not: the same rows and the same counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from conformance.bench import Bench, comparable, load_both
from conformance.enrolled import DESTINATIONS, Surroundings
from conformance.orders import BY_TIME, CDC, DAY1, FEED, ORDERS, UPSERT, event, order
from driver_rows import MANY
from oracle import Oracle, Row, canonical
from tallymark.destinations.contract import WriteMethod
from tallymark.destinations.delta import write as delta_write
from tallymark.destinations.lakehouse import relations as prune
from tallymark.destinations.lakehouse.labels import Labelled
from tallymark.model.plan import KeyRange, Plan
from tallymark.model.settings import MergeSettings

pytestmark = pytest.mark.slow

HISTORIES = [
    (UPSERT, [DAY1, [order(4), order(1, "b")], [order(9)], [order(9), order(1, "c", None), order(3)]]),
    (BY_TIME, [DAY1, [order(1, "b", day=5), order(7)], [order(1, "late", day=3), order(8)]]),
]


@pytest.mark.parametrize(
    ("settings", "batches"),
    HISTORIES if MANY else HISTORIES[:1],
    ids=lambda given: getattr(given, "strategy", ""),
)
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
    possible = delta_write.write_methods

    def wanted_first(labelled: Labelled) -> tuple[WriteMethod, ...]:
        return tuple(sorted(possible(labelled), key=lambda method: method.name != way))

    monkeypatch.setattr(delta_write, "write_methods", wanted_first)
    bench, oracle = (
        Bench(spark, DESTINATIONS["delta"].make(Surroundings(spark, tmp_path, str))),
        Oracle(settings),
    )
    for batch in batches:
        _tell_ranges(bench, batch, monkeypatch)
        load_both(bench, oracle, ORDERS, batch)
    assert canonical(bench.rows()) == canonical(comparable(oracle.rows))
    assert way in {commit.method for commit in bench.commits}


READ_FIRST = {
    "upsert": (
        UPSERT,
        ORDERS,
        # another time; the same time with and without another name; no time; several rows of one key, and the
        # last of them is the table's
        [
            DAY1,
            [order(1, day=2), order(4)],
            [order(1, day=2), order(2, "b")],
            [order(2, "b", day=None), order(3, "c", day=9), order(3, "d", day=8)],
            [order(2, "b", day=None), order(1, day=1), order(1, day=2)],
            [order(2, "b", day=3), order(3, "e", day=8), order(1, day=1), order(1, day=3)],
        ],
    ),
    "feed": (
        CDC,
        FEED,
        [
            [event("i", 1), event("i", 2), event("i", 3)],
            [event("u", 1, "b", day=2), event("d", 2, day=2), event("u", 3)],
            [event("u", 1, "late"), event("i", 2, "late"), event("u", 3, "c", day=3), event("u", 3, day=2)],
        ],
    ),
}


@pytest.mark.parametrize("name", READ_FIRST if MANY else [])
def test_a_few_columns_first(name: str, spark: SparkSession, tmp_path: Path) -> None:
    settings, schema, batches = READ_FIRST[name]
    bench = Bench(spark, DESTINATIONS["delta_large"].make(Surroundings(spark, tmp_path, str)))
    oracle = Oracle(settings)
    for batch in batches:
        load_both(bench, oracle, schema, batch)
    assert canonical(bench.rows()) == canonical(comparable(oracle.rows))


def test_rows_whose_label_is_decided_are_not_read_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []
    read_whole = prune._with_keys_of

    def counted(batch: DataFrame, table: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        whole.append(batch.count())
        return read_whole(batch, table, keys)

    monkeypatch.setattr(prune, "_with_keys_of", counted)
    bench = Bench(spark, DESTINATIONS["delta_large"].make(Surroundings(spark, tmp_path, str)))
    bench.load(UPSERT, ORDERS, DAY1)
    assert bench.load(UPSERT, ORDERS, [order(1, "b", day=2), order(2, day=2), order(4)]).updated == 2
    assert whole == []
    assert bench.load(UPSERT, ORDERS, [order(1, "b", day=3), order(3, "c")]).updated == 2
    assert whole == [1]


def _tell_ranges(bench: Bench, batch: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the checks do, which a Bench leaves out."""
    ids = [row["id"] for row in batch]
    ranges = (KeyRange("id", f"{min(ids)}L", f"{max(ids)}L"),)

    def plan(*args: object, **kwargs: object) -> Plan:
        made = Bench.plan(bench, *args, **kwargs)  # type: ignore[arg-type]
        return replace(made, hints=replace(made.hints, key_ranges=ranges))

    monkeypatch.setattr(bench, "plan", plan)
