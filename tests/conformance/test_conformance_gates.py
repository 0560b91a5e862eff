"""Quality gates see the table exactly as it will be after the load, and looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from conformance.bench import Bench, hash_of
from conformance.orders import (
    APPEND,
    CDC,
    CLOSING,
    DELETE_INSERT,
    FEED,
    FULL_MERGE,
    ORDERS,
    REFRESH,
    SNAPSHOT,
    UPSERT,
    event,
    order,
)
from oracle import Row
from tallymark.checks.quality_gates import Quality, rule_gates
from tallymark.config.quality_section import QualityConfig
from tallymark.errors import ConfigError
from tallymark.model.gate import AFTER, Gate, GateResult, QueryCheck, Severity
from tallymark.model.settings import MergeSettings

pytestmark = pytest.mark.slow_on("delta", "duckdb")

Pairs = list[tuple[object, object]]


def written(sql: str, severity: Severity = Severity.ERROR) -> Gate:
    query = sqlglot.parse_one(sql, dialect="spark")
    assert isinstance(query, exp.Query)
    return Gate("tests/quality/some.sql", severity, QueryCheck(query, sql))


EVERYTHING = written(f"SELECT id, name FROM `{AFTER}`")


def looked_at(
    bench: Bench, settings: MergeSettings, schema: str, rows: list[Row], gates: Sequence[Gate]
) -> tuple[GateResult, ...]:
    """What a plan shows of the next load."""
    bench.sequence += 1
    plan = bench.plan(settings, schema)
    bench.sequence -= 1
    with bench.prepare(plan, schema, rows, for_commit=False) as prepared:
        return prepared.check(gates)


def load_checked(
    bench: Bench, settings: MergeSettings, schema: str, rows: list[Row], gates: Sequence[Gate]
) -> tuple[GateResult, ...]:
    bench.sequence += 1
    plan = bench.plan(settings, schema)
    with bench.prepare(plan, schema, rows) as prepared:
        results = prepared.check(gates)
        commit = prepared.commit(
            bench.marker(f"c{bench.sequence}", prepared.counts, unique_by=plan.unique_by)
        )
    assert commit.disagreement == ""
    return results


def pairs(rows: Sequence[Row]) -> Pairs:
    return sorted(((row["id"], row["name"]) for row in rows), key=str)


BEFORE = [order(1, "a"), order(2, "b"), order(3, None)]
LOADS: dict[str, tuple[MergeSettings, list[Row], list[Row]]] = {
    "append": (APPEND, BEFORE, [order(1, "a"), order(9)]),
    "replace table": (REFRESH, BEFORE, [order(9)]),
    "replace slices": (SNAPSHOT, BEFORE, [order(8, None), order(9, "a")]),
    "replace slices by two": (DELETE_INSERT, BEFORE, [order(1, "a"), order(1, "b"), order(3, None)]),
    "upsert": (UPSERT, BEFORE, [order(2, "c"), order(9)]),
    "nothing changes": (UPSERT, BEFORE, [order(2, "b")]),
    "full merge deletes": (FULL_MERGE, BEFORE, [order(1, "a"), order(2, "c"), order(9)]),
    "versions close": (CLOSING, BEFORE, [order(1, "z"), order(2, "b")]),
}


@pytest.mark.parametrize("case", LOADS)
def test_gates_see_the_table_as_it_will_be(bench: Bench, case: str) -> None:
    settings, before, batch = LOADS[case]
    (created,) = load_checked(bench, settings, ORDERS, before, [EVERYTHING])
    assert pairs(created.samples) == pairs(before) == pairs(bench.rows())
    (planned,) = looked_at(bench, settings, ORDERS, batch, [EVERYTHING])
    assert pairs(bench.rows()) == pairs(before)
    (seen,) = load_checked(bench, settings, ORDERS, batch, [EVERYTHING])
    assert pairs(planned.samples) == pairs(seen.samples) == pairs(bench.rows())
    assert (planned.rows, seen.rows) == (len(bench.rows()),) * 2


def test_gates_see_deletes_of_a_feed_and_repaired_duplicates(bench: Bench) -> None:
    bench.load(APPEND, ORDERS, [order(1, "a"), order(1, "b"), order(2, "c"), order(2, "d"), order(3, "e")])
    batch = [event("d", 1, day=2), event("u", 3, "f", day=2), event("i", 4, "g", day=2)]
    (planned,) = looked_at(bench, CDC, FEED, batch, [EVERYTHING])
    (seen,) = load_checked(bench, CDC, FEED, batch, [EVERYTHING])
    assert pairs(planned.samples) == pairs(seen.samples) == pairs(bench.rows())
    assert [number for number, _ in pairs(bench.rows())] == [2, 3, 4]


def test_a_new_column_is_seen(bench: Bench) -> None:
    bench.load(UPSERT, "id bigint", [{"id": 1}])
    gate = written(f"SELECT id FROM `{AFTER}` WHERE extra IS NULL")
    batch: list[Row] = [{"id": 2, "extra": "x"}]
    (planned,) = looked_at(bench, UPSERT, "id bigint, extra string", batch, [gate])
    (seen,) = load_checked(bench, UPSERT, "id bigint, extra string", batch, [gate])
    assert planned.samples == seen.samples == ({"id": 1},)


def test_a_look_that_is_not_committed_leaves_table_and_markers(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, BEFORE)
    before, bad = pairs(bench.rows()), [order(1, "bad"), order(9)]
    gate = written(f"SELECT id FROM `{AFTER}` WHERE name = 'bad'")
    bench.sequence += 1
    plan = bench.plan(UPSERT, ORDERS)
    with bench.prepare(plan, ORDERS, bad) as prepared:
        (result,) = prepared.check([gate])
    assert result.stops and result.samples == ({"id": 1},)
    assert pairs(bench.rows()) == before
    found = bench.target.markers([hash_of("c2")])
    assert (found.by_hash, found.last_sequence) == ({}, 1)
    (result,) = load_checked(bench, UPSERT, ORDERS, [order(1, "good"), order(9)], [gate])
    assert result.passed and (1, "good") in pairs(bench.rows())


RULES: dict[str, Any] = {
    "min_rows": 7,
    "required_non_null": ["name"],
    "unique_keys": [["id"], ["id", "name"]],
    "numeric_ranges": {"amount": {"min": -0.005, "max": 10}, "id": {"max": 4.5}},
    "accepted_values": {"name": ["a", "b"], "amount": [1, 2.5, -3], "id": [1, 2, 3, 4, 5]},
    "freshness": {"column": "at", "max_age": "1d"},
}


def test_every_rule_finds_its_rows_on_every_destination(bench: Bench) -> None:
    rows = [
        order(1, "a", "1.00"),
        order(1, "b", "2.50"),
        order(2, None, "-3.00"),
        order(5, "x", "100.00"),
        order(None, "a", None),
        order(None, "a", "9.00"),
    ]
    plan = bench.plan(APPEND, ORDERS)
    gates = rule_gates(Quality(QualityConfig.model_validate(RULES)), plan)
    with bench.prepare(plan, ORDERS, rows) as prepared:
        results = {result.rule: result for result in prepared.check(gates)}
    assert {rule: result.rows for rule, result in results.items()} == {
        "min_rows": 1,
        "required_non_null.name": 1,
        "unique_keys.id": 1,
        "unique_keys.id+name": 0,
        "numeric_ranges.amount": 2,
        "numeric_ranges.id": 1,
        "accepted_values.name": 1,
        "accepted_values.amount": 2,
        "accepted_values.id": 0,
        "freshness": 0,
    }
    assert results["min_rows"].samples == ({"row_count": 6},)
    assert results["unique_keys.id"].samples == ({"id": 1, "copies": 2},)
    assert results["required_non_null.name"].samples[0]["id"] == 2


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_freshness_counts_from_the_time_of_the_batch(bench: Bench, kind: str) -> None:
    """A quarter past eleven on 1 November."""
    at = datetime(2026, 10, 31, 0, 0)
    schema = f"id bigint, at {kind}"
    rows: list[Row] = [{"id": 1, "at": at.date() if kind == "date" else at}]
    for age, passes in (("36h", True), ("5h", False)):
        quality = Quality(QualityConfig.model_validate({"freshness": {"column": "at", "max_age": age}}))
        gates = rule_gates(quality, bench.plan(APPEND, schema))
        (result,) = looked_at(bench, APPEND, schema, rows, gates)
        assert result.passed is passes, (age, result)


def test_numbers_and_times_mean_the_same_in_a_query_everywhere(bench: Bench) -> None:
    rows = [order(1, "a", "5.00", 1), order(2, "b", "10.00", 2), order(3, "c", "-1.00", 3)]
    sql = f"SELECT ID FROM `{AFTER}` WHERE Amount < 9 AND AT < TIMESTAMP '2026-11-02T12:00:00Z'"
    (result,) = looked_at(bench, APPEND, ORDERS, rows, [written(sql)])
    assert [list(sample.values()) for sample in result.samples] == [[1]]


@pytest.mark.parametrize(
    ("condition", "found"),
    [("name LIKE 'B%'", [2]), ("CAST(amount AS INT) = 5", [1]), ("name = 'it''s'", [3]), ("id % 2 = 0", [2])],
)
def test_what_databases_understand_differently_means_what_spark_means(
    bench: Bench, condition: str, found: list[int]
) -> None:
    rows = [order(1, "b", "5.90"), order(2, "B", "4.90"), order(3, "it's", "9.00")]
    gate = written(f"SELECT id, COUNT(*) FROM `{AFTER}` WHERE {condition} GROUP BY id")
    (result,) = looked_at(bench, APPEND, ORDERS, rows, [gate])
    assert [sample["id"] for sample in result.samples] == found


def test_a_query_that_the_destination_cannot_run_is_told(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"tests/quality/some\.sql.*nowhere"):
        looked_at(bench, APPEND, ORDERS, BEFORE, [written(f"SELECT nowhere FROM `{AFTER}`")])
