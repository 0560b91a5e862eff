"""Generated tables and batches on real destinations, against the oracle.

A load costs seconds on Delta, so that many examples share one: each has keys of its own, and what happens to
one key is no other's business. `make property` runs a hundred for every strategy on every destination.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from conformance.bench import Bench
from conformance.enrolled import DESTINATIONS, Surroundings
from driver_rows import MANY
from generated import CODES, event, row, timed
from oracle import Oracle, Row, Tied, canonical
from tallymark.model.settings import CdcSettings, MergeSettings, Scd2Settings, Strategy

EXAMPLES = 100
SCHEMA = "example bigint, k1 bigint, k2 string, value string, at bigint"
FEED = "op string, example bigint, k1 bigint, k2 string, value string, at bigint, extra bigint"
KEY = ("example", "k1", "k2")


def keyed(strategy: Strategy, **more: object) -> MergeSettings:
    return MergeSettings(strategy, KEY, **more)  # type: ignore[arg-type]


BY_TIME = Scd2Settings(effective_from="at", current_flag="is_current")
STRATEGIES = {
    "full_refresh": (MergeSettings(Strategy.FULL_REFRESH), row),
    "append_only": (MergeSettings(Strategy.APPEND_ONLY), row),
    "insert": (keyed(Strategy.INSERT), row),
    "update": (keyed(Strategy.UPDATE), row),
    "upsert": (keyed(Strategy.UPSERT), row),
    "incremental": (keyed(Strategy.INCREMENTAL, watermark_column="at"), row),
    "deduplicate": (keyed(Strategy.DEDUPLICATE, dedup_order_by=("at",)), row),
    "full_merge": (keyed(Strategy.FULL_MERGE), row),
    "delete_insert": (keyed(Strategy.DELETE_INSERT), row),
    "snapshot": (MergeSettings(Strategy.SNAPSHOT, partition_column="at"), row),
    "scd2": (keyed(Strategy.SCD2, scd2=BY_TIME), timed),
    "cdc": (keyed(Strategy.CDC, cdc=CdcSettings("op", ("at",), CODES)), event),
    "cdc partial": (keyed(Strategy.CDC, cdc=CdcSettings("op", ("at",), CODES, partial=True)), event),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", [name for name, entry in DESTINATIONS.items() if not entry.differs_in])
def test_generated_batches(
    kind: str,
    strategy: str,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if not MANY:
        pytest.skip("make property runs it; tests/property tries the same labels in SQLite and DuckDB")
    merge, rows = STRATEGIES[strategy]
    around = Surroundings(spark, tmp_path, request.getfixturevalue("postgres") if kind == "postgres" else str)
    follow(Bench(spark, DESTINATIONS[kind].make(around)), merge, generated(rows))


def generated(rows: st.SearchStrategy[Row]) -> list[list[list[Row]]]:
    found = []

    @given(batches=st.lists(st.lists(rows, max_size=4), min_size=3, max_size=3))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],  # they are only gathered here: nothing can fail, so nothing shrinks
        derandomize=True,
    )
    def gather(batches: list[list[Row]]) -> None:
        found.append(batches)

    gather()
    return found


def follow(bench: Bench, merge: MergeSettings, examples: list[list[list[Row]]]) -> None:
    oracle = Oracle(merge)
    feed = merge.strategy is Strategy.CDC
    for number in range(3):
        batch = [
            {"example": example, **each}
            for example, batches in enumerate(examples)
            for each in batches[number]
        ]
        names = [part.split()[0] for part in (FEED if feed else SCHEMA).split(", ")]
        batch = decided(oracle, [{name: each[name] for name in names} for each in batch])
        counts = bench.load(merge, FEED if feed else SCHEMA, batch)
        assert counts == oracle.load(batch, bench.as_of)
        assert canonical(bench.rows()) == canonical(oracle.rows)


def decided(oracle: Oracle, batch: list[Row]) -> list[Row]:
    """Without the examples that would be refused."""
    undecided = set()
    for example in {each["example"] for each in batch}:
        try:
            copy.deepcopy(oracle).load([each for each in batch if each["example"] == example])
        except Tied:
            undecided.add(example)
    return [each for each in batch if each["example"] not in undecided]
