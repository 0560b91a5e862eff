"""A commit that was confirmed survives a power loss; one that was not confirmed is not called a failure."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallymark.destinations.duckdb.engine import DuckDbEngine
from tallymark.destinations.postgres.engine import PostgresEngine
from tallymark.destinations.sqlite.engine import SqliteEngine, SqliteSession
from tallymark.errors import CommitUnknown, RowsRefused

EXTRA = 3


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_sqlite_syncs_what_it_commits_in_every_journal_mode(tmp_path: Path, journal: str) -> None:
    path = str(tmp_path / "shop.db")
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
    other.close()
    for durable in (True, False):
        with SqliteEngine(path, durable=durable).session(writes=True) as session:
            assert (session.fetch("PRAGMA synchronous")[0][0] == EXTRA) is durable


def test_duckdb_makes_the_names_of_its_files_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = [], os.fsync

    def spy(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", spy)
    with DuckDbEngine(str(tmp_path / "shop.duckdb")).session(writes=True) as session:
        session.execute("BEGIN")
        session.execute("CREATE TABLE t (a INT)")
        session.commit()
    assert synced == [tmp_path.resolve()]


def test_postgres_waits_for_its_disk_also_where_the_server_would_not(postgres: Callable[[], str]) -> None:
    url = postgres()
    for durable, setting in ((True, "on"), (False, "off")):  # the server of the tests has it off
        with PostgresEngine(url, durable=durable).session(writes=True) as session:
            assert session.fetch("SHOW synchronous_commit") == [(setting,)]


class Unanswered(sqlite3.Connection):
    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        cursor = super().execute(sql, *given)
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


def test_sqlite_knows_which_commits_it_can_still_take_back(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    engine = SqliteEngine(path)
    with engine.session(writes=True) as session:
        session.execute("PRAGMA foreign_keys = ON")
        session.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        session.execute("CREATE TABLE b (id INT REFERENCES a(id) DEFERRABLE INITIALLY DEFERRED)")
        session.execute("BEGIN")
        session.execute("INSERT INTO b VALUES (1)")
        with pytest.raises(RowsRefused):
            session.commit()
    unanswered = SqliteSession(engine, sqlite3.connect(path, isolation_level=None, factory=Unanswered))
    unanswered.execute("BEGIN")
    unanswered.execute("INSERT INTO a VALUES (1)")
    with pytest.raises(CommitUnknown):
        unanswered.commit()
    unanswered.connection.close()
    with engine.session(writes=False) as session:
        assert session.fetch("SELECT COUNT(*) FROM a") == [(1,)]
