"""A batch with unique keys is not ranked. The database decides whether they are unique."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from oracle import Row, canonical
from tallymark.errors import TiedRows
from tallymark.model.settings import CdcSettings, MergeSettings, Scd2Settings, Strategy
from unit.destinations.databases import Database

UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("k",))
PAIRS = "k int, v string"


class Watched:
    """What was asked of the database: queries that make labels, and whether rows share columns."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch):
        with database.engine.session(writes=True) as session:
            kind = type(session)
        self.labels: list[str] = []
        self.shared: list[str] = []
        make, fetch = kind.create_temporary_as, kind.fetch

        def create_temporary_as(session: Any, name: str, columns: Any, query: str) -> None:
            self.labels.append(query)
            make(session, name, columns, query)

        def fetched(session: Any, sql: str) -> Any:
            if sql.startswith(("SELECT 1 FROM (SELECT COUNT(*)", 'SELECT "k"')):
                self.shared.append(sql)
            return fetch(session, sql)

        monkeypatch.setattr(kind, "create_temporary_as", create_temporary_as)
        monkeypatch.setattr(kind, "fetch", fetched)


@pytest.fixture
def watched(database: Database, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(database, monkeypatch)


def test_unique_keys_are_not_ranked(database: Database, watched: Watched) -> None:
    database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    counts = database.load("t", UPSERT, PAIRS, [{"k": 2, "v": "B"}, {"k": 3, "v": "c"}])
    assert (counts.inserted, counts.updated, counts.skipped) == (1, 1, 0)
    assert [query for query in watched.labels if "ROW_NUMBER" in query] == []
    rows = [{"k": 1, "v": "a"}, {"k": 2, "v": "B"}, {"k": 3, "v": "c"}]
    assert canonical(database.rows("t")) == canonical(rows)


def test_of_a_key_that_occurs_twice_the_last_row_counts(database: Database, watched: Watched) -> None:
    database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "a"}])
    counts = database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "b"}, {"k": 2, "v": "c"}, {"k": 1, "v": "d"}])
    assert (counts.inserted, counts.updated, counts.skipped) == (1, 1, 1)
    assert "ROW_NUMBER" in watched.labels[-1]
    assert canonical(database.rows("t")) == canonical([{"k": 1, "v": "d"}, {"k": 2, "v": "c"}])


@pytest.mark.parametrize(("second", "ranked"), [("y", False), ("x", True)])
def test_a_key_of_several_columns(database: Database, watched: Watched, second: str, ranked: bool) -> None:
    settings = MergeSettings(Strategy.UPSERT, unique_key=("k", "w"))
    rows: list[Row] = [{"k": 1, "w": "x", "v": "a"}, {"k": 1, "w": second, "v": "b"}]
    counts = database.load("t", settings, "k int, w string, v string", rows)
    assert (counts.inserted, counts.skipped) == ((1, 1) if ranked else (2, 0))
    assert ("ROW_NUMBER" in watched.labels[-1]) == ranked


@pytest.mark.parametrize(("second", "ranked"), [(2, False), (1, True)])
def test_changes(database: Database, watched: Watched, second: int, ranked: bool) -> None:
    feed = CdcSettings(operation_column="op", sequence_by=("n",))
    settings = MergeSettings(Strategy.CDC, unique_key=("k",), cdc=feed)
    schema = "k int, v string, n int, op string"
    first, last = {"k": 1, "v": "a", "n": 1, "op": "I"}, {"k": second, "v": "b", "n": 2, "op": "U"}
    database.load("t", settings, schema, [first, last])
    assert (_ranks_the_batch(watched.labels[-1]), len(watched.shared)) == (ranked, 2 if ranked else 1)
    assert {(row["k"], row["v"]) for row in database.rows("t")} == {
        (second, "b"),
        *([] if ranked else [(1, "a")]),
    }


def test_versions_are_unique_by_key_and_time(database: Database, watched: Watched) -> None:
    history = Scd2Settings(effective_from="at")
    settings = MergeSettings(Strategy.SCD2, unique_key=("k",), scd2=history)
    schema = "k int, v string, at timestamp_ntz"
    days = [datetime(2026, 1, day) for day in (1, 2)]
    database.load("t", settings, schema, [{"k": 1, "v": f"{day}", "at": day} for day in days])
    assert not _ranks_the_batch(watched.labels[-1])
    database.load("t", settings, schema, [{"k": 2, "v": "a", "at": days[0]}] * 2)
    assert _ranks_the_batch(watched.labels[-1])
    assert len(database.rows("t")) == 3


@pytest.mark.parametrize(
    ("native", "kind", "values"),
    [
        ("char(3)", "string", ["a", "a "]),
        ("timestamp(0)", "timestamp_ntz", [datetime(2026, 1, 1, microsecond=n) for n in (1, 2)]),
    ],
)
def test_what_is_equal_is_what_the_database_takes_for_equal(
    database: Database, native: str, kind: str, values: list[object]
) -> None:
    if database.kind != "postgres":
        pytest.skip("has no such types")
    database.execute(f"CREATE TABLE t (k {native}, v text)")
    rows = [{"k": value, "v": v} for value, v in zip(values, "ab", strict=True)]
    counts = database.load("t", UPSERT, f"k {kind}, v string", rows)
    assert (counts.inserted, counts.skipped) == (1, 1)
    assert [row["v"] for row in database.rows("t")] == ["b"]


def test_the_database_is_asked_once(database: Database, watched: Watched) -> None:
    settings = MergeSettings(Strategy.INCREMENTAL, unique_key=("k",), watermark_column="n")
    schema = "k int, v string, n int"
    database.load("t", settings, schema, [{"k": 1, "v": "a", "n": 1}, {"k": 1, "v": "b", "n": 2}])
    assert len(watched.shared) == 1
    with pytest.raises(TiedRows, match="equal in key and declared order"):
        database.load("t", settings, schema, [{"k": 1, "v": "a", "n": 3}, {"k": 1, "v": "b", "n": 3}])
    assert len(watched.shared) == 2


def test_a_plan_for_people_shows_the_rank(database: Database) -> None:
    plan = database.plan("t", UPSERT, PAIRS)
    with database.prepare(plan, PAIRS, [{"k": 1}], for_commit=False) as prepared:
        assert "ROW_NUMBER() OVER (" in prepared.sql()
        assert "TM_RANK" not in prepared.sql()


def test_a_key_that_the_table_holds_twice_is_found_by_a_unique_batch(database: Database) -> None:
    database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    database.execute(
        "INSERT INTO t (k, v) VALUES (1, 'x')"
    )  # without Tallymark, which assumes that the table is unique
    settings = MergeSettings(Strategy.DEDUPLICATE, unique_key=("k",))
    counts = database.load("t", settings, PAIRS, [{"k": 1, "v": "c"}])
    assert (counts.updated, counts.deleted) == (1, 1)
    assert canonical(database.rows("t")) == canonical([{"k": 1, "v": "c"}, {"k": 2, "v": "b"}])


def _ranks_the_batch(query: str) -> bool:
    """Whether one of its windows sorts the batch by position."""
    return '"_tm_row" DESC' in query
