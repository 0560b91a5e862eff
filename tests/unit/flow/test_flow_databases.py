"""Strategies with a memory, and what a table already holds, through a whole project on a database."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tallymark.destinations.sqlite import engine as sqlite_module
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.model.report import Outcome, RepeatedFile
from unit.flow.shop import DatabaseShop

PEOPLE = """
source: {files: landing/people/*}
columns: [{name: id, type: bigint}]
unique_key: [id]
"""
HISTORY = PEOPLE + "merge_strategy: scd2\n"
DATED = (
    HISTORY.replace("bigint}]", "bigint}, {name: since, type: timestamp_ntz}]")
    + "scd_effective_from: since\n"
)
FEED = PEOPLE + "merge_strategy: cdc\ncdc: {envelope: debezium, sequence_by: [source.lsn]}\n"
ODD = ("full name", "a,b", "x=(1)", "dotted.name", 'quo"ted', "before")


def event(op: str, before: Any, after: Any, lsn: int) -> str:
    record = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
    return json.dumps({"payload": record}) + "\n"


def test_a_history_begins_with_its_batch(store: DatabaseShop) -> None:
    store.pipeline("people", HISTORY)
    store.drop("people/1.csv", "id,name\n1,Ann\n2,Bob\n")
    planned = store.plan("people")
    assert store.load("people").counts == planned.counts
    store.drop("people/2.csv", "id,name\n1,Ann\n2,Rob\n3,Cy\n")
    planned = store.plan("people")
    loaded = store.load("people")
    assert loaded.counts == planned.counts
    assert (loaded.counts.inserted, loaded.counts.closed, loaded.counts.unchanged) == (2, 1, 1)
    with store.open() as project:
        second, first = (record.as_of for record in project.history("people"))
    began, changed = (moment.isoformat(" ", "microseconds") for moment in (first, second))
    rows = store.sql("SELECT id, name, valid_from, valid_to FROM people ORDER BY id, valid_from")
    assert rows == [
        (1, "Ann", began, None),
        (2, "Bob", began, changed),
        (2, "Rob", changed, None),
        (3, "Cy", changed, None),
    ]
    assert store.load("people").outcome is Outcome.NOTHING_NEW
    assert store.sql("SELECT id, name, valid_from, valid_to FROM people ORDER BY id, valid_from") == rows


def test_rows_that_the_table_refuses_name_their_file(store: DatabaseShop) -> None:
    store.pipeline("people", PEOPLE + "merge_strategy: upsert\n")
    store.sql("CREATE TABLE people (id BIGINT, name TEXT CHECK (name <> 'bad'))")
    path = store.drop("people/1.csv", "id,name\n1,bad\n")
    (failure,) = store.run("people").failures
    assert (failure.code, str(path) in failure.message) == ("TM510", True)


def test_a_version_without_its_time_is_a_bad_row(store: DatabaseShop) -> None:
    store.pipeline("people", DATED + "quarantine: {max_fraction: 0.5}\n")
    store.drop("people/1.csv", "id,name,since\n1,Ann,2026-01-01 00:00:00\n2,Bob,\n")
    planned = store.plan("people")
    assert [(bad.row, bad.column) for bad in planned.bad_rows] == [(2, "since")]
    assert store.load("people").counts.rejected == 1
    assert store.sql("SELECT id, since FROM people") == [(1, "2026-01-01 00:00:00.000000")]


def test_a_key_that_changes_in_a_feed(store: DatabaseShop) -> None:
    store.pipeline("people", FEED)
    ann, bob = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}
    store.drop("people/1.ndjson", event("c", None, ann, 1) + event("c", None, bob, 2))
    planned = store.plan("people")
    assert store.load("people").counts == planned.counts
    moved = event("u", bob, {"id": 3, "name": "Bob"}, 4)
    late = event("u", None, {"id": 2, "name": "late"}, 3)
    store.drop("people/2.ndjson", moved + late + event("u", ann, {"id": 1, "name": "Anna"}, 5))
    planned = store.plan("people")
    loaded = store.load("people")
    assert loaded.counts == planned.counts
    assert (loaded.counts.inserted, loaded.counts.updated, loaded.counts.deleted) == (1, 1, 1)
    assert store.sql("SELECT id, name, lsn FROM people ORDER BY id") == [(1, "Anna", 5), (3, "Bob", 4)]
    store.drop("people/3.ndjson", event("u", None, {"id": 2, "name": "later, yet older"}, 3))
    assert store.load("people").counts.skipped == 1
    assert len(store.sql("SELECT id FROM people")) == 2


def test_duplicates_of_the_table_are_told_and_do_not_trip_the_guard(store: DatabaseShop) -> None:
    store.pipeline("people", PEOPLE + "merge_strategy: full_merge\nguards: {max_delete_fraction: 0.1}\n")
    store.drop("people/1.csv", "id,name\n1,Ann\n2,Bob\n")
    store.load("people")
    store.sql("INSERT INTO people SELECT * FROM people WHERE id = 1")
    store.sql("INSERT INTO people SELECT * FROM people WHERE id = 1")
    store.drop("people/2.csv", "id,name\n1,Anna\n2,Bob\n")
    planned = store.plan("people")
    assert (planned.duplicates, planned.guards) == (3, ())
    assert "people: 3 duplicate rows of 1 keys are removed (id=1)" in planned.warnings
    [receipt] = store.load("people").receipts
    assert (receipt.counts, receipt.warnings) == (planned.counts, planned.warnings)
    assert store.sql("SELECT id, name FROM people ORDER BY id") == [(1, "Anna"), (2, "Bob")]


def test_a_busy_database_costs_no_attempt(store: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "SqliteEngine", partial(SqliteEngine, busy_seconds=0.2))
    store.pipeline("people", PEOPLE + "merge_strategy: upsert\n")
    store.drop("people/1.csv", "id,name\n1,Ann\n")
    with closing(sqlite3.connect(store.root / "shop.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        report = store.run("people")
        other.execute("ROLLBACK")
    assert [(failure.code, failure.retry_safe) for failure in report.failures] == [("TM507", True)]
    with store.open() as project:
        assert project.status()[0].files == {"PENDING": 1}
    assert store.load("people").counts.inserted == 1


def test_what_is_known_by_its_content(store: DatabaseShop) -> None:
    """A touched file, the same content under another name, and then another table."""
    store.pipeline("people", PEOPLE + "merge_strategy: append_only\n")
    first = store.drop("people/1.csv", "id,name\n1,Ann\n")
    store.load("people")
    os.utime(first, (1_000_000_000, 1_000_000_000))
    assert store.load("people").outcome is Outcome.NOTHING_NEW
    second = store.drop("people/2.csv", "id,name\n1,Ann\n")
    report = store.load("people")
    assert (report.outcome, report.discovery.duplicates) == (
        Outcome.NOTHING_NEW,
        (RepeatedFile(str(second), str(first)),),
    )
    with store.open() as project:
        assert project.status()[0].files == {"COMMITTED": 1, "DUPLICATE": 1}
    store.pipeline("people", PEOPLE + "merge_strategy: append_only\ntable: persons\n")
    assert store.load("people").counts.inserted == 1
    assert store.sql("SELECT id FROM persons") == store.sql("SELECT id FROM people") == [(1,)]


def test_a_dropped_table_takes_its_markers_along(store: DatabaseShop) -> None:
    store.pipeline("people", PEOPLE + "merge_strategy: upsert\n")
    for number in (1, 2):
        store.drop(f"people/{number}.csv", f"id,name\n{number},Ann\n")
        store.load("people")
    store.lose_ledger()
    assert store.load("people").outcome is Outcome.NOTHING_NEW
    store.lose_ledger()
    store.sql("DROP TABLE people")
    store.drop("people/2.csv", "id,name\n3,Cy\n")
    assert store.load("people").counts.inserted == 2
    store.lose_ledger()
    store.drop("people/2.csv", "id,name\n2,Ann\n")
    assert store.load("people").counts.inserted == 1
    assert store.sql("SELECT id FROM people ORDER BY id") == [(1,), (2,), (3,)]


def test_names_that_need_quotes_or_mean_something_elsewhere(store: DatabaseShop) -> None:
    source = "source: {files: landing/people/*, options: {escape: '\"'}}"
    rest = "merge_strategy: upsert\nunique_key: ['full name']\nquarantine: {max_fraction: 0.5}\n"
    store.pipeline("people", f"{source}\n{rest}")
    names = ",".join('"' + name.replace('"', '""') + '"' for name in ODD)
    store.drop("people/1.csv", f"{names}\nAnn,1,2,3,4,5\nBob,1,2,3,4,5\n")
    store.load("people")
    store.drop("people/2.csv", f"{names}\nAnn,1,2,3,4,6\nBob,1,2,3,4,5\n,1,2,3,4,5\n")
    counts = store.load("people").counts
    assert (counts.updated, counts.unchanged, counts.rejected) == (1, 1, 1)
    assert store.sql(f"SELECT {names} FROM people ORDER BY 1") == [
        ("Ann", "1", "2", "3", "4", "6"),
        ("Bob", "1", "2", "3", "4", "5"),
    ]
    with store.open() as project:
        assert [(row.row, row.column) for row in project.quarantine_show("people")] == [(3, "full name")]
