"""Every strategy, on every destination, against the oracle: the same rows and the same counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import pytest
from bench import Bench, hash_of

from oracle import Row, apply_batch, canonical
from tallymark.errors import Fenced, PlanError, TableMoved, TiedRows, TypeConflict
from tallymark.model.settings import MergeSettings, SchemaEvolution, Strategy

ORDERS = "id bigint, name string, amount decimal(12,2), at timestamp"
APPEND = MergeSettings(Strategy.APPEND_ONLY)
REFRESH = MergeSettings(Strategy.FULL_REFRESH)
UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("id",))
INCREMENTAL = MergeSettings(Strategy.INCREMENTAL, unique_key=("id",), watermark_column="at")
PAIR = MergeSettings(Strategy.UPSERT, unique_key=("id", "name"))


def order(
    number: int | None, name: str | None = "a", amount: str | None = "1.00", day: int | None = 1
) -> Row:
    return {
        "id": number,
        "name": name,
        "amount": None if amount is None else Decimal(amount),
        "at": None if day is None else datetime(2026, 11, day),
    }


@dataclass(frozen=True)
class Case:
    name: str
    settings: MergeSettings
    batches: list[list[Row]]


DAY1 = [order(1), order(2), order(3)]
CASES = [
    Case("append keeps duplicates", APPEND, [DAY1, DAY1, [order(1), order(1)]]),
    Case("append of nothing", APPEND, [DAY1, []]),
    Case("refresh replaces", REFRESH, [DAY1, [order(9)], [order(9), order(9)]]),
    Case("refresh with nothing empties", REFRESH, [DAY1, []]),
    Case("upsert only new", UPSERT, [DAY1, [order(4), order(5)]]),
    Case("upsert changed, new and unchanged", UPSERT, [DAY1, [order(1, "b"), order(2), order(7)]]),
    Case("upsert of the same rows changes nothing", UPSERT, [DAY1, DAY1]),
    Case("upsert of nothing", UPSERT, [DAY1, []]),
    Case("upsert into nothing", UPSERT, [[], DAY1]),
    Case("upsert takes the last of a key", UPSERT, [[order(1, "x"), order(1, "y")], [order(1, "z"), order(1, "y")]]),
    Case("upsert to and from NULL", UPSERT, [DAY1, [order(1, None)], [order(1, None), order(2, "a", None)], DAY1]),
    Case("upsert by two keys", PAIR, [DAY1, [order(1, "a", "2.00"), order(1, "b")]]),
    Case("incremental leaves newer rows", INCREMENTAL, [[order(1, "new", day=5)], [order(1, "old", day=4)]]),
    Case("incremental takes equal and later", INCREMENTAL, [[order(1, day=5)], [order(1, "b", day=5)], [order(1, "c", day=6)]]),
    Case("incremental takes the latest of a batch", INCREMENTAL, [[order(1, "new", day=7), order(1, "old", day=2)]]),
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


def test_names_match_in_any_order_and_case(bench: Bench) -> None:
    bench.load(UPSERT, "id bigint, name string", [{"id": 1, "name": "a"}])
    counts = bench.load(UPSERT, "NAME string, ID bigint", [{"NAME": "a", "ID": 1}, {"NAME": "b", "ID": 2}])
    assert (counts.inserted, counts.unchanged) == (1, 1)
    assert canonical(bench.rows()) == canonical([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])


def test_odd_names_are_quoted(bench: Bench) -> None:
    schema = "`select` bigint, `größe-2` string"
    settings = MergeSettings(Strategy.UPSERT, unique_key=("select",))
    bench.load(settings, schema, [{"select": 1, "größe-2": "x"}])
    counts = bench.load(settings, schema, [{"select": 1, "größe-2": "y"}, {"select": 2, "größe-2": None}])
    assert (counts.inserted, counts.updated) == (1, 1)


def test_a_batch_without_a_column_keeps_its_values(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, [order(1, "a", "5.00")])
    counts = bench.load(UPSERT, "id bigint, name string", [{"id": 1, "name": "b"}, {"id": 2, "name": "c"}])
    assert (counts.inserted, counts.updated) == (1, 1)
    kept = {row["id"]: row["amount"] for row in bench.rows()}
    assert kept == {1: Decimal("5.00"), 2: None}


@pytest.mark.core
def test_new_columns_are_added(bench: Bench) -> None:
    bench.load(UPSERT, "id bigint", [{"id": 1}, {"id": 2}])
    counts = bench.load(
        UPSERT, "id bigint, extra string", [{"id": 1, "extra": "x"}, {"id": 2, "extra": None}]
    )
    assert (counts.updated, counts.unchanged) == (1, 1)
    assert canonical(bench.rows()) == canonical([{"id": 1, "extra": "x"}, {"id": 2}])


@pytest.mark.parametrize("settings", [APPEND, REFRESH], ids=["append", "refresh"])
def test_new_columns_are_added_without_keys(bench: Bench, settings: MergeSettings) -> None:
    bench.load(settings, "id bigint", [{"id": 1}])
    bench.load(settings, "id bigint, extra string", [{"id": 2, "extra": "x"}])
    assert {"id": 2, "extra": "x"} in bench.rows()


def test_new_columns_can_be_ignored_or_refused(bench: Bench) -> None:
    bench.load(UPSERT, "id bigint", [{"id": 1}])
    ignoring = MergeSettings(Strategy.UPSERT, ("id",), schema_evolution=SchemaEvolution.IGNORE)
    counts = bench.load(ignoring, "id bigint, extra string", [{"id": 1, "extra": "x"}])
    assert counts.unchanged == 1
    refusing = MergeSettings(Strategy.UPSERT, ("id",), schema_evolution=SchemaEvolution.FAIL)
    with pytest.raises(PlanError, match="extra"):
        bench.load(refusing, "id bigint, extra string", [{"id": 1, "extra": "x"}])


def test_narrow_types_are_promoted_and_wide_ones_refused(bench: Bench) -> None:
    bench.load(UPSERT, "id bigint, amount decimal(12,2)", [{"id": 1, "amount": Decimal("1.50")}])
    counts = bench.load(UPSERT, "id int, amount decimal(5,1)", [{"id": 1, "amount": Decimal("1.5")}])
    assert counts.unchanged == 1
    with pytest.raises(TypeConflict, match=r"amount.*decimal\(12,4\)"):
        bench.load(UPSERT, "id bigint, amount decimal(12,4)", [{"id": 1, "amount": Decimal("1.5001")}])


def test_nan_equals_nan_and_zero_has_no_sign(bench: Bench) -> None:
    schema = "id bigint, x double"
    bench.load(UPSERT, schema, [{"id": 1, "x": float("nan")}, {"id": 2, "x": 0.0}])
    counts = bench.load(UPSERT, schema, [{"id": 1, "x": float("nan")}, {"id": 2, "x": -0.0}])
    assert counts.unchanged == 2


@pytest.mark.core
def test_nested_values_are_compared_whole(bench: Bench) -> None:
    schema = "id bigint, address struct<street:string,tags:array<string>>, labels map<string,int>"
    before = {"id": 1, "address": {"street": "a", "tags": ["x"]}, "labels": {"a": 1}}
    bench.load(UPSERT, schema, [before])
    changed = {**before, "labels": {"a": 2}}
    assert bench.load(UPSERT, schema, [before]).unchanged == 1
    assert bench.load(UPSERT, schema, [changed]).updated == 1


def test_rows_that_the_declared_order_cannot_tell_apart_are_refused(bench: Bench) -> None:
    with pytest.raises(TiedRows, match="id=1"):
        bench.load(INCREMENTAL, ORDERS, [order(1, "a", day=3), order(1, "b", day=3)])
    assert bench.destination.inspect(bench.table) is None
    bench.load(INCREMENTAL, ORDERS, [order(1, "a", day=3), order(1, "a", day=3)])


def test_duplicates_in_the_table_stop_a_merge(bench: Bench) -> None:
    bench.load(APPEND, ORDERS, [order(1), order(1), order(2)])
    with pytest.raises(PlanError, match="several rows for one unique_key: id=1"):
        bench.load(UPSERT, ORDERS, [order(1, "b")])
    assert bench.load(UPSERT, ORDERS, [order(2, "b")]).updated == 1


@pytest.mark.core
def test_a_repeated_sequence_is_refused_by_the_destination(bench: Bench) -> None:
    """The zombie: a worker that lost its table commits late, with a number that a newer writer has used."""
    for settings in (APPEND, UPSERT, REFRESH):
        bench.load(settings, ORDERS, DAY1)
        before = canonical(bench.rows())
        plan = bench.plan(settings, ORDERS)
        late = bench.incoming(ORDERS, [order(1, "zombie")])
        with bench.destination.prepare(plan, late) as prepared, pytest.raises(Fenced):
            prepared.commit(bench.marker("late", prepared.counts))
        assert canonical(bench.rows()) == before


def test_a_commit_in_between_is_seen(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    plan = bench.plan(UPSERT, ORDERS)
    with bench.destination.prepare(plan, bench.incoming(ORDERS, [order(1, "stale")])) as prepared:
        bench.load(UPSERT, ORDERS, [order(1, "fresh")])
        with pytest.raises(TableMoved):
            prepared.commit(bench.marker("stale", prepared.counts, sequence=99))


@pytest.mark.core
def test_markers_are_found_before_and_after_they_are_copied(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1, content="one")
    bench.load(UPSERT, ORDERS, DAY1, content="two")  # changes nothing, counts as applied
    for _ in range(2):
        found = bench.destination.applied(bench.table, [hash_of("one"), hash_of("two"), hash_of("never")])
        assert set(found.by_hash) == {hash_of("one"), hash_of("two")}
        assert found.last_sequence == 2
        assert found.by_hash[hash_of("one")].marker.counts.inserted == 3
        assert found.by_hash[hash_of("one")].version == bench.commits[0].version
        bench.destination.settle(bench.table)
    assert set(bench.destination.applied(bench.table, None).by_hash) == {hash_of("one"), hash_of("two")}


def test_samples_show_before_and_after(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    plan = bench.plan(UPSERT, ORDERS)
    with bench.destination.prepare(plan, bench.incoming(ORDERS, [order(1, "b"), order(8)])) as prepared:
        samples = {sample.label: sample for sample in prepared.samples(5)}
        assert samples["update"].before is not None
        assert (samples["update"].before["name"], (samples["update"].after or {})["name"]) == ("a", "b")
        assert samples["insert"].before is None
        assert "_tm_label" in prepared.sql()
    assert len(bench.rows()) == 3
