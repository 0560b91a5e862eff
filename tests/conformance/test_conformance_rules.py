"""The rules for all strategies, and what a destination owes the protocol."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest

from conformance.bench import Bench, hash_of
from conformance.orders import APPEND, DAY1, INCREMENTAL, ORDERS, REFRESH, UPSERT, order
from oracle import canonical
from tallymark.errors import (
    CountsDoNotBalance,
    Fenced,
    PlanError,
    TableBusy,
    TableMoved,
    TiedRows,
    TypeConflict,
)
from tallymark.model.plan import Label, Merge
from tallymark.model.settings import MergeSettings, OnTargetDuplicates, SchemaEvolution, Strategy

pytestmark = pytest.mark.slow_on("delta", "duckdb")


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
    assert math.isnan(next(row["x"] for row in bench.rows() if row["id"] == 1))


def test_labels_that_do_not_balance_are_refused(bench: Bench) -> None:
    plan = bench.plan(UPSERT, ORDERS)
    assert isinstance(plan.shape, Merge)
    losing = replace(plan, shape=replace(plan.shape, labels=plan.shape.labels.limit(1)))
    with pytest.raises(CountsDoNotBalance), bench.prepare(losing, ORDERS, DAY1):
        pass
    assert bench.target.shape() is None


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
    assert bench.target.shape() is None
    bench.load(INCREMENTAL, ORDERS, [order(1, "a", day=3), order(1, "a", day=3)])


def test_duplicates_in_the_table_stop_a_merge(bench: Bench) -> None:
    bench.load(APPEND, ORDERS, [order(1), order(1), order(2)])
    failing = replace(UPSERT, on_target_duplicates=OnTargetDuplicates.FAIL)
    with pytest.raises(PlanError, match="id=1"):
        bench.load(failing, ORDERS, [order(1, "b")])
    assert len(bench.rows()) == 3


def test_duplicates_in_the_table_are_repaired_by_a_merge(bench: Bench) -> None:
    bench.load(APPEND, ORDERS, [order(1), order(1), order(2), order(3), order(3), order(3)])
    counts = bench.load(UPSERT, ORDERS, [order(1, "b"), order(4)])
    assert (counts.inserted, counts.updated, counts.deleted, counts.total) == (1, 1, 3, 2)
    assert canonical(bench.rows()) == canonical([order(1, "b"), order(2), order(3), order(4)])


def test_a_repeated_sequence_is_refused_by_the_destination(bench: Bench) -> None:
    """The zombie: a worker that lost its table commits late, with a number that a newer writer has used."""
    for settings in (APPEND, UPSERT, REFRESH):
        bench.load(settings, ORDERS, DAY1)
        before = canonical(bench.rows())
        plan = bench.plan(settings, ORDERS)
        with bench.prepare(plan, ORDERS, [order(1, "zombie")]) as prepared, pytest.raises(Fenced):
            prepared.commit(bench.marker("late", prepared.counts))
        assert canonical(bench.rows()) == before


def test_a_commit_in_between_is_seen(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    plan = bench.plan(UPSERT, ORDERS)
    with bench.prepare(plan, ORDERS, [order(1, "stale")]) as prepared:
        if bench.destination.capabilities.locks_while_loading:
            with pytest.raises(TableBusy):
                bench.load(UPSERT, ORDERS, [order(1, "fresh")])
            return
        bench.load(UPSERT, ORDERS, [order(1, "fresh")])
        with pytest.raises(TableMoved):
            prepared.commit(bench.marker("stale", prepared.counts, sequence=99))


def test_markers_are_found_before_and_after_they_are_copied(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1, content="one")
    bench.load(UPSERT, ORDERS, DAY1, content="two")  # changes nothing, counts as applied
    for _ in range(2):
        found = bench.target.markers([hash_of("one"), hash_of("two"), hash_of("never")])
        assert set(found.by_hash) == {hash_of("one"), hash_of("two")}
        assert found.last_sequence == 2
        assert found.by_hash[hash_of("one")].marker.counts.inserted == 3
        assert found.by_hash[hash_of("one")].version == bench.commits[0].version
        bench.target.settle()
    assert set(bench.target.markers(None).by_hash) == {hash_of("one"), hash_of("two")}


def test_samples_show_before_and_after(bench: Bench) -> None:
    bench.load(UPSERT, ORDERS, DAY1)
    plan = bench.plan(UPSERT, ORDERS)
    with bench.prepare(plan, ORDERS, [order(1, "b"), order(8)]) as prepared:
        samples = {sample.label: sample for sample in prepared.samples(5)}
        update = samples[Label.UPDATE]
        assert ((update.before or {})["name"], (update.after or {})["name"]) == ("a", "b")
        assert samples[Label.INSERT].before is None
        assert "_tm_label" in prepared.sql()
    assert len(bench.rows()) == 3
