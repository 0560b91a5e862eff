"""Plans: what a strategy falls back to, and the hints of a merge."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tallymark.errors import PlanError
from tallymark.model.plan import Hints, KeyRange, Merge, Plan, ReadFirst, ReplaceTable
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Scd2Settings, Strategy
from tallymark.model.table import Column, TableShape
from tallymark.strategies.build import build_plan, effective_settings

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
