"""Tables of databases as inputs. No Spark: Arrow reads the exported file instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.postgres import engine as postgres_module
from tallymark.destinations.sqlite import engine as sqlite_module
from tallymark.destinations.warehouse import read as warehouse_read
from tallymark.destinations.warehouse.engine import CatalogEntry, Session, TableName
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.errors import DestinationError, InputMoved, NotATable
from tallymark.model.receipt import Counts, Marker
from unit.destinations.databases import FileReader, Input, duckdb_database, postgres_database, sqlite_database


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Input:
    spark = cast(SparkSession, FileReader())
    match request.param:
        case "sqlite":
            return Input(sqlite_database(tmp_path, spark))
        case "duckdb":
            return Input(duckdb_database(tmp_path, spark))
        case _:
            return Input(postgres_database(request.getfixturevalue("postgres")(), spark))


def test_a_table_of_others_has_a_version_by_its_rows(given: Input) -> None:
    execute = given.database.execute
    execute("CREATE TABLE t (k BIGINT, v VARCHAR(9))")
    versions = [given.version()]
    for change in (
        "INSERT INTO t VALUES (1, 'a'), (2, NULL)",
        "UPDATE t SET v = 'b' WHERE k = 1",
        "INSERT INTO t VALUES (2, NULL)",
        "ALTER TABLE t ADD COLUMN w BIGINT",
    ):
        execute(change)
        versions.append(given.version())
    assert len({*versions, None}) == 6
    assert given.version() == versions[-1]
    assert given.now() == [(1, "b", None), (2, None, None), (2, None, None)]
    with pytest.raises(InputMoved, match=str(versions[1])):
        given.rows(versions[1])


def test_the_order_of_rows_is_no_version(given: Input) -> None:
    given.database.execute("CREATE TABLE t (k BIGINT)")
    given.database.execute("INSERT INTO t VALUES (1), (2), (3)")
    version = given.version()
    given.database.execute("DELETE FROM t")
    given.database.execute("INSERT INTO t VALUES (3), (1), (2)")
    assert given.version() == version


def test_a_loaded_table_has_a_version_by_its_last_load(given: Input) -> None:
    given.database.execute("CREATE TABLE t (k BIGINT)")
    mark(given, 1, "one")
    first = given.version()
    mark(given, 2, "two")
    second = given.version()
    assert (first or "").startswith("1-")
    assert (second or "").startswith("2-")
    given.database.execute("ALTER TABLE t ADD COLUMN w BIGINT")
    assert given.version() not in (first, second)


def test_a_table_created_again_by_a_load_has_another_version(given: Input) -> None:
    given.database.execute("CREATE TABLE t (k BIGINT)")
    mark(given, 1, "one")
    first = given.version()
    given.database.execute("DROP TABLE t")
    assert given.version() is None
    with pytest.raises(InputMoved, match="no longer exists"):
        given.rows(first)
    given.database.execute("CREATE TABLE t (k BIGINT)")
    mark(given, 1, "another one", forget=True)
    assert given.version() not in (first, None)


def test_a_view_has_a_version_by_what_it_gives(given: Input) -> None:
    given.database.execute("CREATE TABLE rows_of_it (k BIGINT)")
    given.database.execute(
        "CREATE VIEW t AS SELECT k, k + 1 AS next, 'x' AS x, 0.5 + k AS half FROM rows_of_it"
    )
    empty = given.version()
    given.database.execute("INSERT INTO rows_of_it VALUES (1)")
    assert given.version() not in (empty, None)
    [(k, following, x, half)] = given.now()
    assert (k, following, x, float(cast(Any, half))) == (1, 2, "x", 1.5)


NO_INPUTS = {
    "sqlite": "CREATE VIRTUAL TABLE t USING fts5(k)",
    "postgres": "CREATE MATERIALIZED VIEW t AS SELECT 1 AS k",
}


def test_what_is_neither_table_nor_view_is_no_input(given: Input) -> None:
    if given.database.kind not in NO_INPUTS:
        pytest.skip("it has nothing else")
    given.database.execute(NO_INPUTS[given.database.kind])
    with pytest.raises(NotATable, match=r"is a (virtual|materialized)"):
        given.version()


UNKNOWN_TO_SPARK = {
    "sqlite": ("k INTEGER, u VARCHAR(3), p NUMERIC(10,2)", "(1, 7, 1.5)", (1, "7", Decimal("1.50"))),
    "duckdb": ("h HUGEINT, j JSON, i INTERVAL", "(5, '{}', INTERVAL 1 DAY)", (Decimal(5), "{}", "1 day")),
    "postgres": (
        'n numeric, "b ""2" numeric(50,1), j json',
        "(2.5, 7, '{\"a\":1.10}')",
        (Decimal("2.5"), "7.0", '{"a":1.10}'),
    ),
}


def test_types_of_others_become_what_spark_has(given: Input) -> None:
    columns, values, expected = UNKNOWN_TO_SPARK[given.database.kind]
    given.database.execute(f"CREATE TABLE t ({columns})")
    given.database.execute(f"INSERT INTO t VALUES {values}")
    assert given.now() == [expected]


UNREADABLE = {
    "sqlite": ("flag BOOLEAN", "('maybe')", "column flag: .*boolean.*maybe"),
    "duckdb": ("n HUGEINT", f"({10**38})", "DECIMAL"),
    "postgres": ("n numeric", "(1e-30)", r"column n: .*decimal\(38,18\)"),
}


def test_no_value_is_changed_to_make_it_readable(given: Input) -> None:
    columns, values, message = UNREADABLE[given.database.kind]
    given.database.execute(f"CREATE TABLE t ({columns})")
    given.database.execute(f"INSERT INTO t VALUES {values}")
    with pytest.raises(DestinationError, match=message):
        given.now()


def test_rows_come_some_at_a_time(given: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_module, postgres_module):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    given.database.execute("CREATE TABLE t (k BIGINT)")
    given.database.execute("INSERT INTO t VALUES (1), (2), (3), (4), (5)")
    assert given.now() == [(1,), (2,), (3,), (4,), (5,)]
    given.database.execute("DELETE FROM t")
    assert given.now() == []


def test_changes_while_the_rows_are_read_are_not_seen(given: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    if given.database.kind == "sqlite":
        pytest.skip("a reader of SQLite lets no writer commit")
    given.database.execute("CREATE TABLE t (k BIGINT)")
    given.database.execute("INSERT INTO t VALUES (1)")
    version = given.version()
    in_between(monkeypatch, lambda: given.database.execute("UPDATE t SET k = 2"))
    assert given.rows(version) == [(1,)]
    assert given.version() != version


def test_a_table_is_not_emptied_under_a_reader(
    postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRUNCATE empties a table of PostgreSQL for readers of an older state too."""
    given = Input(postgres_database(postgres(), cast(SparkSession, FileReader())))
    given.database.execute("CREATE TABLE t (k BIGINT)")
    given.database.execute("INSERT INTO t VALUES (1)")
    mark(given, 1, "one")  # so that the version does not depend on the rows

    def truncate() -> None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            given.database.execute("SET lock_timeout = '50ms'; TRUNCATE t")

    in_between(monkeypatch, truncate)
    assert given.now() == [(1,)]


def test_a_full_disk_says_where(given: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    given.database.execute("CREATE TABLE t (k BIGINT)")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        f"tallymark.destinations.{given.database.kind}.engine.{session_class(given)}.export", full
    )
    with pytest.raises(DestinationError, match="No space left") as caught:
        given.now()
    assert "TMPDIR" in caught.value.hint


def session_class(given: Input) -> str:
    return {"sqlite": "SqliteSession", "duckdb": "DuckDbSession", "postgres": "PostgresSession"}[
        given.database.kind
    ]


def in_between(monkeypatch: pytest.MonkeyPatch, what: Any) -> None:
    """After the version was compared and before the rows are read."""
    export = warehouse_read._export

    def late(session: Session, name: TableName, found: CatalogEntry, folder: Path) -> None:
        what()
        export(session, name, found, folder)

    monkeypatch.setattr(warehouse_read, "_export", late)


def mark(given: Input, sequence: int, batch: str, *, forget: bool = False) -> None:
    """What a load leaves, but its rows."""
    at = datetime(2026, 11, 1, tzinfo=UTC)
    marker = Marker(batch, "test", "key", sequence, 1, (batch,), at, "test", Counts())
    engine = given.database.engine
    name = engine.qualify("t")
    with engine.session(writes=True) as session:
        session.begin(name, exists=True, lock=True)
        found = session.describe(name) or CatalogEntry(())
        markers = MarkerTables(session, name, found.table_id)
        if forget:
            replace(markers, table_id="").forget()
        markers.write(marker)
        session.commit()
