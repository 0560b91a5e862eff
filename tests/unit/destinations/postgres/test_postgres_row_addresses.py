"""PostgreSQL finds the rows to update by their ctid, where no two rows share one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from oracle import canonical
from tallymark.destinations.postgres.engine import PostgresSession
from tallymark.model.settings import MergeSettings, Strategy
from unit.destinations.databases import Database, postgres_database

UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("k",))
PAIRS = "k int, v string"
PARTS = {
    "one table": ["CREATE TABLE t (k int, v text)"],
    "partitions": [
        "CREATE TABLE t (k int, v text) PARTITION BY RANGE (k)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)",
    ],
    "children": ["CREATE TABLE t (k int, v text)", "CREATE TABLE child () INHERITS (t)"],
}


@pytest.fixture
def server(postgres: Callable[[], str], spark: SparkSession) -> Database:
    return postgres_database(postgres(), spark)


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements that update `t`."""
    seen: list[str] = []
    execute = PostgresSession.execute

    def watched(session: PostgresSession, sql: str) -> int:
        if sql.startswith('UPDATE "t"'):
            seen.append(sql)
        return execute(session, sql)

    monkeypatch.setattr(PostgresSession, "execute", watched)
    return seen


@pytest.mark.parametrize("parts", PARTS)
def test_of_rows_in_the_same_place_of_two_parts_the_right_one_is_updated(
    server: Database, updates: list[str], parts: str
) -> None:
    for statement in PARTS[parts]:
        server.execute(statement)
    server.execute("INSERT INTO t VALUES (1, 'a'), (11, 'x')")
    if parts == "children":
        server.execute("INSERT INTO child VALUES (2, 'b'), (12, 'y')")
    counts = server.load("t", UPSERT, PAIRS, [{"k": 11, "v": "new"}, {"k": 5, "v": "five"}])
    assert (counts.inserted, counts.updated) == (1, 1)
    left = [] if parts != "children" else [{"k": 2, "v": "b"}, {"k": 12, "v": "y"}]
    expected = [{"k": 1, "v": "a"}, {"k": 11, "v": "new"}, {"k": 5, "v": "five"}, *left]
    assert canonical(server.rows("t")) == canonical(expected)
    assert [("ctid" in statement) for statement in updates] == [parts == "one table"]


def test_the_planner_is_left_as_it_was(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates may ask for anything after the update, in the same transaction."""
    server.load("t", UPSERT, PAIRS, [{"k": 1, "v": "a"}])
    seen: list[object] = []
    commit = PostgresSession.commit

    def watched(session: PostgresSession) -> None:
        seen.extend(session.fetch("SELECT current_setting('enable_hashjoin')")[0])
        commit(session)

    monkeypatch.setattr(PostgresSession, "commit", watched)
    server.load("t", UPSERT, PAIRS, [{"k": 1, "v": "b"}])
    assert seen == ["on"]


def test_a_table_that_had_duplicates_is_updated_by_key(server: Database, updates: list[str]) -> None:
    """Repairing moves rows."""
    server.execute("CREATE TABLE t (k int, v text)")
    server.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (1, 'a')")
    counts = server.load("t", UPSERT, PAIRS, [{"k": 1, "v": "c"}, {"k": 2, "v": "d"}])
    assert (counts.updated, counts.deleted) == (2, 1)
    assert canonical(server.rows("t")) == canonical([{"k": 1, "v": "c"}, {"k": 2, "v": "d"}])
    assert [("ctid" in statement) for statement in updates] == [False]
