"""Keys with times, and times that Python has no objects for: samples, duplicates and refusals show them."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime

import pytest

from tallymark.errors import TiedRows
from tallymark.model.settings import MergeSettings, Strategy
from unit.destinations.databases import Database

KEYED = "k string, at timestamp, v int"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_the_tests_run_without_pytz() -> None:
    """With it, the driver of DuckDB would hide what fails elsewhere."""
    assert importlib.util.find_spec("pytz") is None


def test_a_key_of_a_text_and_a_timestamp(database: Database) -> None:
    settings = MergeSettings(Strategy.UPSERT, ("k", "at"))
    database.load("t", settings, KEYED, [{"k": "a", "at": NOON, "v": 1}])
    twice = [{"k": "a", "at": NOON, "v": 2}, {"k": "a", "at": NOON, "v": 3}]
    counts = database.load("t", settings, KEYED, twice)
    assert (counts.updated, counts.skipped) == (1, 1)


def test_a_tie_of_a_key_with_a_timestamp_is_shown(database: Database) -> None:
    settings = MergeSettings(Strategy.UPSERT, ("k", "at"), dedup_order_by=("k",))
    tied = [{"k": "a", "at": NOON, "v": 2}, {"k": "a", "at": NOON, "v": 3}]
    with pytest.raises(TiedRows, match="at=2026-11-01"):
        database.load(
            "t", MergeSettings(Strategy.DEDUPLICATE, settings.unique_key, dedup_order_by=("k",)), KEYED, tied
        )


FAR = {
    "sqlite": ("'0000-03-01'", "'0000-03-01 00:00:00.000000'"),
    "duckdb": ("DATE '0044-03-01 (BC)'", "TIMESTAMPTZ '0044-03-01 (BC) 00:00:00+00'"),
    "postgres": ("'0044-03-01 BC'", "'infinity'"),
}


def test_duplicates_with_far_times_are_shown_and_repaired(database: Database) -> None:
    """A table of others: its duplicates are listed with their keys."""
    kinds = {"sqlite": ("DATE", "TIMESTAMPTZ")}.get(database.kind, ("date", "timestamptz"))
    database.execute(f'CREATE TABLE t (d {kinds[0]}, "at" {kinds[1]}, v integer)')
    day, moment = FAR[database.kind]
    database.execute(f"INSERT INTO t VALUES ({day}, {moment}, 1), ({day}, {moment}, 2)")
    settings = MergeSettings(Strategy.UPSERT, ("d", "at"))
    row = {"d": NOON.date(), "at": NOON, "v": 3}
    counts = database.load("t", settings, "d date, at timestamp, v int", [row])
    assert (counts.inserted, counts.deleted) == (1, 1)
    [(left,)] = database.execute("SELECT COUNT(*) FROM t")
    assert left == 2
