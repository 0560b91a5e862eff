"""Plans: what a strategy falls back to, and the hints of a merge."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlglot import exp

from tallymark.destinations.queries import render
from tallymark.errors import PlanError
from tallymark.model.plan import Hints, KeyRange, Merge, Plan, ReadFirst, ReplaceTable
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Scd2Settings, Strategy
from tallymark.model.table import Column, TableShape
from tallymark.strategies.build import build_plan, effective_settings, takes_one_file_per_batch

COLUMNS = (
    Column("id", "bigint"),
    Column("name", "string"),
    Column("changed_at", "timestamp"),
    Column("op", "string"),
)
TABLE = TableShape(COLUMNS, "7", unique_by=("id",))
KEY = ("id",)
FEED = CdcSettings("op", ("changed_at",))
CUTTING = replace(FEED, codes={**FEED.codes, Operation.TRUNCATE: ("t",)})
RANGES = (KeyRange("id", "1L", "9L"),)


def plan(settings: MergeSettings, *, rebuild: bool = False) -> Plan:
    as_of = datetime(2026, 11, 1, tzinfo=UTC)
    return build_plan("t", settings, COLUMNS, TABLE, as_of=as_of, rebuild=rebuild, key_ranges=RANGES)


@pytest.mark.parametrize(
    ("settings", "batch_keys", "updated_row", "joins_fully", "read_first"),
    [
        (MergeSettings(Strategy.INSERT, KEY), KEY, "", False, ReadFirst("changed_at")),
        (MergeSettings(Strategy.UPSERT, KEY), KEY, "c", False, ReadFirst("changed_at")),
        (MergeSettings(Strategy.UPSERT, KEY, skip_unchanged=False), KEY, "c", False, None),
        (
            MergeSettings(Strategy.INCREMENTAL, KEY, watermark_column="changed_at"),
            KEY,
            "c",
            False,
            ReadFirst("changed_at", ("changed_at",)),
        ),
        (MergeSettings(Strategy.FULL_MERGE, KEY), (), "", True, ReadFirst("changed_at")),
        (MergeSettings(Strategy.SCD2, KEY), KEY, "", False, None),
        (MergeSettings(Strategy.SCD2, KEY, scd2=Scd2Settings(close_absent=True)), (), "", False, None),
        (MergeSettings(Strategy.CDC, KEY, cdc=replace(FEED, partial=True)), KEY, "", False, None),
        (MergeSettings(Strategy.CDC, KEY, cdc=replace(CUTTING, history=True)), (), "", False, None),
    ],
)
def test_hints_follow_from_the_strategy(
    settings: MergeSettings,
    batch_keys: tuple[str, ...],
    updated_row: str,
    joins_fully: bool,
    read_first: ReadFirst | None,
) -> None:
    hints = plan(settings).hints
    assert (hints.batch_keys, hints.updated_row) == (batch_keys, updated_row)
    assert (hints.full_join is not None, hints.read_first) == (joins_fully, read_first)
    assert hints.key_ranges == RANGES


def test_only_a_merge_has_hints() -> None:
    assert plan(MergeSettings(Strategy.APPEND_ONLY)).hints == Hints(key_ranges=RANGES)


def test_a_missing_field_falls_back_under_the_delete_guard() -> None:
    made = plan(MergeSettings(Strategy.UPSERT))
    assert isinstance(made.shape, ReplaceTable)
    assert made.max_delete_fraction == 0.5
    assert made.warnings == ("merge_strategy upsert needs unique_key: falls back to full_refresh",)
    with pytest.raises(PlanError, match="needs unique_key, and strict is on"):
        effective_settings(MergeSettings(Strategy.UPSERT, strict=True))


@pytest.mark.parametrize(
    ("settings", "guard"),
    [
        (MergeSettings(Strategy.FULL_MERGE, KEY), 0.5),
        (MergeSettings(Strategy.FULL_MERGE, KEY, max_delete_fraction=0.1), 0.1),
        (MergeSettings(Strategy.FULL_REFRESH), None),
        (MergeSettings(Strategy.UPSERT, KEY), None),
    ],
)
def test_a_full_merge_is_guarded(settings: MergeSettings, guard: float | None) -> None:
    assert plan(settings).max_delete_fraction == guard


def test_strategies_whose_files_replace_each_other_take_one_at_a_time() -> None:
    by_time = MergeSettings(Strategy.SCD2, KEY, scd2=Scd2Settings(effective_from="changed_at"))
    assert {s for s in Strategy if takes_one_file_per_batch(MergeSettings(s, KEY))} == {
        Strategy.FULL_REFRESH,
        Strategy.FULL_MERGE,
        Strategy.SNAPSHOT,
        Strategy.DELETE_INSERT,
        Strategy.SCD2,
    }
    assert not takes_one_file_per_batch(by_time)


def test_rows_without_a_key_are_no_duplicates() -> None:
    shape = plan(MergeSettings(Strategy.UPSERT, KEY)).shape
    assert isinstance(shape, Merge)
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE current (id, name, changed_at, op)")
    rows = [(None, "a"), (None, "b"), (1, "c"), (1, "d"), (2, "e")]
    database.executemany("INSERT INTO current (id, name) VALUES (?, ?)", rows)
    as_of = exp.Literal.string("")
    found = database.execute(render(shape.duplicates.keys, "sqlite", as_of=as_of)).fetchall()
    left = database.execute(render(shape.duplicates.survivors, "sqlite", as_of=as_of)).fetchall()
    assert found == [(1, 2)]
    assert sorted(row[1] for row in left) == ["a", "b", "d", "e"]


def test_a_rebuild_compares_with_an_empty_table() -> None:
    made = plan(MergeSettings(Strategy.UPSERT, KEY), rebuild=True)
    assert isinstance(made.shape, Merge) and made.shape.rebuilds and made.replaces_table
    assert not made.shape.duplicates.whole_table
    assert made.reason == "full refresh of upsert: rows are matched by id"
    assert made.max_delete_fraction is None


def test_a_column_that_the_batch_lacks_is_named_with_a_suggestion() -> None:
    with pytest.raises(PlanError, match="unique_key: the batch has no column naem") as refused:
        plan(MergeSettings(Strategy.UPSERT, ("naem",)))
    assert refused.value.hint == "did you mean name?"


EVERY_NAME = MergeSettings(
    Strategy.UPSERT,
    ("Id",),
    watermark_column="Changed_At",
    partition_column="Name",
    dedup_order_by=("Changed_At",),
    compare_columns=("Name",),
    scd2=Scd2Settings("Valid_From", "Valid_To", "Is_Current", "Changed_At"),
    cdc=CdcSettings("Op", ("Changed_At",)),
)


@pytest.mark.parametrize(("strategy", "history"), [*((one, False) for one in Strategy), (Strategy.CDC, True)])
@pytest.mark.parametrize("exists", [False, True])
def test_names_in_settings_match_whatever_their_case(strategy: Strategy, history: bool, exists: bool) -> None:
    """The queries name columns as the table does, or else the batch: a quoted "id" is not "ID" in PostgreSQL."""
    assert EVERY_NAME.cdc is not None
    declared = replace(EVERY_NAME, strategy=strategy, cdc=replace(EVERY_NAME.cdc, history=history))
    spelled = MergeSettings(
        strategy,
        ("ID",),
        watermark_column="CHANGED_AT",
        partition_column="NAME",
        dedup_order_by=("CHANGED_AT",),
        compare_columns=("NAME",),
        scd2=Scd2Settings("VALID_FROM", "VALID_TO", "IS_CURRENT", "CHANGED_AT"),
        cdc=CdcSettings("OP", ("CHANGED_AT",), history=history),
    )
    upper = [Column(column.name.upper(), column.type) for column in COLUMNS]
    own = [("VALID_FROM", "timestamp"), ("VALID_TO", "timestamp"), ("IS_CURRENT", "boolean")]
    table = TableShape((*upper, *(Column(*column) for column in own)), "7") if exists else None
    as_of = datetime(2026, 11, 1, tzinfo=UTC)
    expected = build_plan("t", spelled, upper, table, as_of=as_of)
    incoming = COLUMNS if exists else upper  # a batch may spell them as it likes, if there is a table
    found = build_plan("t", declared, incoming, table, as_of=as_of)
    own_names = {name for name, _ in own}
    assert _without(found, own_names) == _without(expected, own_names) if not exists else found == expected


def _without(plan: Plan, own: set[str]) -> object:
    """A table that the load creates spells the columns of a history as the settings do."""
    columns = [column for column in plan.columns if column.name.upper() not in own]
    return columns, plan.given, plan.settings.unique_key, plan.settings.cdc, plan.hints
