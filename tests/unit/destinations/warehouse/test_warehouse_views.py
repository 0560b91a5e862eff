"""Views of databases: created once, replaced only if Tallymark made them, in the database's own SQL. No Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.contract import ViewPlan, ViewQuery, Views
from tallymark.destinations.warehouse.engine import Session
from tallymark.errors import DestinationError, Fenced, NotATable, TableMoved, Unsupported
from tallymark.model.receipt import Counts, Marker
from unit.destinations.databases import (
    Database,
    FileReader,
    Input,
    duckdb_database,
    hash_of,
    postgres_database,
    sqlite_database,
)

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Base:
    database: Database
    sequence: int = 0

    @property
    def views(self) -> Views:
        views = self.database.destination.views
        assert views is not None
        return views

    def query(self, sql: str) -> ViewQuery:
        return ViewQuery(sql, {"orders": "orders"}, "pipelines/v/pipeline.sql")

    def plan(self, sql: str) -> ViewPlan:
        return self.views.plan("v", self.query(sql))

    def marker(self, sequence: int, content: str = "") -> Marker:
        hashes = (hash_of(content or f"c{sequence}"),)
        key = self.database.destination.table("v").key
        return Marker(f"batch-{sequence}", "v", key, sequence, 1, hashes, AS_OF, "view", Counts())

    def make(self, sql: str) -> None:
        self.sequence += 1
        self.views.make(self.plan(sql), self.marker(self.sequence))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.database.execute("SELECT * FROM v"), key=repr)

    def columns(self) -> list[str]:
        with self.database.engine.session(writes=False) as session:
            return session.fetch_named("SELECT * FROM v")[0]

    def held(self) -> int:
        return self.database.destination.table("v").markers(()).held_sequence


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Base:
    spark = cast(SparkSession, FileReader())
    match request.param:
        case "sqlite":
            made = Base(sqlite_database(tmp_path, spark))
        case "duckdb":
            made = Base(duckdb_database(tmp_path, spark))
        case _:
            made = Base(postgres_database(request.getfixturevalue("postgres")(), spark))
    types = {
        t: made.database.engine.native_type(t) for t in ("bigint", "string", "decimal(12,2)", "timestamp")
    }
    made.database.execute(
        f"CREATE TABLE orders (id {types['bigint']}, status {types['string']}, "
        f'"Amount" {types["decimal(12,2)"]}, "at" {types["timestamp"]}, _source_file {types["string"]})'
    )
    made.database.execute(
        "INSERT INTO orders VALUES (1, 'new', '9.50', '2026-01-31 23:00:00.000000+00:00', 'a.csv'), "
        "(2, 'Paid', '10.25', '2026-02-01 00:00:00.000000+00:00', 'a.csv'), "
        "(3, 'paid', NULL, '2026-02-01 12:30:00.000000+00:00', 'b.csv')"
    )
    return made


def test_a_view_has_a_marker_and_can_be_replaced(base: Base) -> None:
    base.make("SELECT id FROM orders WHERE id > 1")
    assert base.rows() == [(2,), (3,)]
    assert base.held() == 1
    base.make("SELECT id FROM orders WHERE id > 2")
    assert base.rows() == [(3,)]
    found = base.database.destination.table("v").markers(None)
    assert (found.held_sequence, list(found.by_hash)) == (2, [hash_of("c2")])


def test_its_columns_may_be_others_than_before(base: Base) -> None:
    base.make("SELECT id, status FROM orders")
    base.make("SELECT status AS id FROM orders WHERE id = 1")
    assert base.rows() == [("new",)]


def test_all_columns_are_those_that_spark_would_give(base: Base) -> None:
    base.make("SELECT * FROM orders WHERE AMOUNT > 10")
    [row] = Input(base.database).rows(Input(base.database).version("v"), "v")
    assert base.columns() == ["id", "status", "Amount", "at"]
    assert (row[0], row[1], float(cast(Any, row[2]))) == (2, "Paid", 10.25)
    base.make("SELECT ID, status AS State FROM orders")
    assert base.columns() == ["ID", "State"]


MEANT = {
    "status LIKE 'P%'": [2],  # SQLite's own LIKE would find `paid` too
    "status NOT LIKE '_aid'": [1],
    "amount > 9.6": [2],  # as texts, '9.50' would be more than '10.25'
    "at >= '2026-02-01'": [2, 3],
    "at < TIMESTAMP '2026-02-01 00:00:00'": [1],
    "CAST(at AS DATE) = DATE '2026-02-01'": [2, 3],
    "date(at) BETWEEN '2026-01-01' AND '2026-01-31'": [1],
    "year(at) = 2026 AND month(at) = 2 AND day(at) = 1": [2, 3],
    "datediff(at, '2026-01-31') = 1": [2, 3],
    "CAST(amount + 0.3 AS INT) = 9": [1],  # 9.8, which PostgreSQL and DuckDB would round to 10
    "CAST(amount AS DECIMAL(12,1)) = 9.5": [1],
    "id / 2 = 0.5": [1],
    "id % 2 = 1": [1, 3],
    "CAST(id AS STRING) || status = '1new'": [1],
    "concat(status, 'x', CAST(NULL AS STRING)) IS NULL": [1, 2, 3],
    "substring(status, 1, 2) = 'ne' AND length(trim(status)) = 3": [1],
    "amount <=> NULL": [3],
    "coalesce(amount, 0) = 0": [3],
    "CASE WHEN amount > 10 THEN 'much' ELSE 'little' END = 'much'": [2],
    "id IN (SELECT max(id) FROM orders)": [3],
    "id = CAST('2' AS BIGINT)": [2],
    "round(amount, 0) = 10": [1, 2],
}


def test_words_mean_what_they_mean_in_spark(base: Base) -> None:
    found = {
        condition: sorted(base.database.execute(base.plan(f"SELECT id FROM orders WHERE {condition}").sql))
        for condition in MEANT
    }
    assert found == {condition: [(number,) for number in expected] for condition, expected in MEANT.items()}


def test_sums_and_windows(base: Base) -> None:
    base.make(
        "WITH ranked AS (SELECT *, row_number() OVER (PARTITION BY lower_status ORDER BY id DESC) AS place FROM "
        "(SELECT *, CASE WHEN status = 'new' THEN 'new' ELSE 'paid' END AS lower_status FROM orders) AS all_orders) "
        "SELECT lower_status AS State, sum(id) AS ids, avg(id) AS mean, count(*) AS n, max(at) AS last "
        "FROM ranked WHERE place <= 2 GROUP BY lower_status ORDER BY ids"
    )
    version = Input(base.database).version("v")
    rows = Input(base.database).rows(version, "v")
    assert [row[:4] for row in rows] == [("new", 1, 1.0, 1), ("paid", 5, 2.5, 2)]
    assert [type(value) for value in rows[0][1:4]] == [int, float, int]


REFUSED = {
    "SELECT rand() AS r FROM orders": "RAND",
    "SELECT date_format(at, 'yyyy') AS y FROM orders": "DATE_FORMAT",
    "SELECT id FROM orders WHERE status = 5": "mixes a text and a whole number",
    "SELECT id FROM orders WHERE status RLIKE 'x'": "RLIKE",
    "SELECT CAST(status AS INT) AS n FROM orders": "CAST",
    "SELECT CAST(amount AS STRING) AS n FROM orders": "CAST",
    "SELECT try_cast(id AS STRING) AS n FROM orders": "TRY_CAST",
    "SELECT sum(status) AS n FROM orders": "needs a number",
    "SELECT at - at AS n FROM orders": "needs a number",
    "SELECT id + 1 FROM orders": "no name",
    "SELECT id, Id FROM orders": "two columns are named id",
    "SELECT nobody FROM orders": "nobody",
    "SELECT _source_file FROM orders": "no columns",
    "SELECT id FROM orders WHERE status LIKE status": "must be a literal",
    "SELECT amount % 2 AS m FROM orders": "whole number",
    "SELECT id FROM orders WHERE at > 'soon'": "is not a valid time",
    "SELECT id FROM orders WHERE at = date(at)": "mixes",
    "SELECT substring(status, -1) AS s FROM orders": "SUBSTRING",
    "SELECT explode(array(1, 2)) AS x FROM orders": "EXPLODE",
    "SELECT count(DISTINCT id, status) AS n FROM orders": "COUNT",
    "SELECT CASE WHEN id = 1 THEN 1 ELSE status END AS x FROM orders": "mixes",
    "SELECT CASE status WHEN 1 THEN 'a' END AS x FROM orders": "mixes",
    "SELECT if(id = 1, id, status) AS x FROM orders": "mixes",
    "SELECT id FROM orders UNION SELECT status FROM orders": "mixes",
    "SELECT status, count(*) AS n FROM orders GROUP BY ALL": "name the columns",
}


def test_what_engines_understand_differently_is_refused(base: Base) -> None:
    told: dict[str, str] = {}
    for sql, why in REFUSED.items():
        with pytest.raises(Unsupported, match=r"pipelines/v/pipeline\.sql") as refused:
            base.plan(sql)
        told[sql] = why if why in refused.value.message else refused.value.message
    assert told == REFUSED


def test_what_sqlite_lacks_is_refused_there_alone(base: Base) -> None:
    sql = "SELECT upper(status) AS status, date_trunc('month', at) AS month FROM orders WHERE id = 3"
    if base.database.kind == "sqlite":
        with pytest.raises(Unsupported, match="ASCII letters"):
            base.plan(sql)
        return
    base.make(f"{sql} AND at < current_timestamp() AND date_trunc('day', at) = '2026-02-01'")
    assert [row[0] for row in base.database.execute("SELECT status FROM v")] == ["PAID"]


def test_a_table_is_never_replaced(base: Base) -> None:
    base.database.execute("CREATE TABLE v (k BIGINT)")
    with pytest.raises(NotATable, match="is a table"):
        base.plan("SELECT id FROM orders")
    assert base.rows() == []


def test_a_view_of_somebody_else_is_left_alone(base: Base) -> None:
    base.database.execute("CREATE VIEW v AS SELECT 7 AS k")
    with pytest.raises(NotATable, match="did not create"):
        base.plan("SELECT id FROM orders")
    assert base.rows() == [(7,)]


def test_so_is_ours_once_somebody_has_changed_it(base: Base) -> None:
    base.make("SELECT id FROM orders")
    planned = base.plan("SELECT id FROM orders WHERE id > 1")
    base.database.execute("DROP VIEW v")
    base.database.execute("CREATE VIEW v AS SELECT 7 AS k")
    for attempt in (
        lambda: base.plan("SELECT id FROM orders"),
        lambda: base.views.make(planned, base.marker(2)),
    ):
        with pytest.raises(NotATable, match="somebody has changed"):
            attempt()
    assert (base.rows(), base.held()) == ([(7,)], 0)


def test_a_dropped_view_holds_nothing_and_is_made_again(base: Base) -> None:
    base.make("SELECT id FROM orders WHERE id = 1")
    base.database.execute("DROP VIEW v")
    assert base.held() == 0
    base.make("SELECT id FROM orders WHERE id = 1")
    assert (base.rows(), base.held()) == ([(1,)], 2)


def test_a_late_writer_is_refused(base: Base) -> None:
    base.make("SELECT id FROM orders WHERE id = 1")
    base.make("SELECT id FROM orders WHERE id = 2")
    late = base.plan("SELECT id FROM orders WHERE id = 3")
    for marker in (base.marker(2), base.marker(3, "c2")):
        with pytest.raises(Fenced):
            base.views.make(late, marker)
    assert base.rows() == [(2,)]


def test_a_plan_that_no_longer_holds_is_made_again(base: Base) -> None:
    planned = base.plan("SELECT * FROM orders")
    base.database.execute("ALTER TABLE orders ADD COLUMN more BIGINT")
    with pytest.raises(TableMoved):
        base.views.make(planned, base.marker(1))
    assert base.plan("SELECT * FROM orders").sql != planned.sql
    kept = base.plan("SELECT id, amount FROM orders")
    base.database.execute("ALTER TABLE orders ADD COLUMN evenmore BIGINT")
    assert base.plan("SELECT id, amount FROM orders") == kept


def test_what_is_missing_is_told(base: Base) -> None:
    planned = base.views.plan("v", ViewQuery("SELECT k FROM a", {"a": "absent", "orders": "orders"}, "f"))
    assert (planned.missing, planned.sql) == (("a",), "")


def test_what_the_database_refuses_changes_nothing(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    base.make("SELECT id FROM orders")
    planned = base.plan("SELECT id FROM orders WHERE id > 1")
    wrong = replace(planned, sql="SELECT nobody FROM orders")
    monkeypatch.setattr(type(base.views), "_planned", lambda *_: wrong)
    with pytest.raises(DestinationError, match=r"(?s)pipelines/v/pipeline.sql.*nothing was changed"):
        base.views.make(wrong, base.marker(2))
    assert (len(base.rows()), base.held()) == (3, 1)


def test_a_crash_before_the_commit_leaves_everything_as_it_was(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    base.make("SELECT id FROM orders WHERE id = 1")
    with base.database.engine.session(writes=False) as session:
        kind: type[Session] = type(session)

    def dies(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(kind, "commit", dies)
        base.make("SELECT id, status FROM orders")
    assert (base.rows(), base.held()) == ([(1,)], 1)


def test_a_view_can_be_read_and_its_version_is_what_it_gives(base: Base) -> None:
    given = Input(base.database)
    base.make("SELECT id, amount FROM orders WHERE id < 3")
    first = given.version("v")
    assert [row[0] for row in given.rows(first, "v")] == [1, 2]
    base.database.execute("INSERT INTO orders VALUES (9, 'x', NULL, NULL, NULL)")
    assert given.version("v") == first  # it gives the same
    base.database.execute("DELETE FROM orders WHERE id = 1")
    assert given.version("v") not in (first, None)
    assert [row[0] for row in given.rows(given.version("v"), "v")] == [2]


def test_a_view_can_read_a_view(base: Base) -> None:
    base.make("SELECT id, sum(amount) AS Total FROM orders GROUP BY id")
    query = ViewQuery("SELECT id FROM v WHERE total > 10", {"v": "v"}, "f")
    base.views.make(base.views.plan("w", query), replace(base.marker(1), table_key="w"))
    assert base.database.execute("SELECT * FROM w") == [(2,)]


def test_a_view_is_no_place_for_a_load(base: Base) -> None:
    base.make("SELECT id FROM orders")
    with pytest.raises(NotATable, match="is a view") as refused:
        base.database.destination.table("v").shape()
    assert "drop the view" in refused.value.hint


def test_other_views_that_read_it_are_named(postgres: Any) -> None:
    base = Base(postgres_database(postgres(), cast(SparkSession, FileReader())))
    base.database.execute("CREATE TABLE orders (id bigint, status text)")
    base.make("SELECT id, status FROM orders")
    base.database.execute("CREATE VIEW reader AS SELECT status FROM v")
    base.make("SELECT id, status, id * 2 AS twice FROM orders")  # a column more is no harm
    with pytest.raises(DestinationError, match="reader") as refused:
        base.make("SELECT id FROM orders")
    assert "drop the views that read it" in refused.value.hint
    assert "pipelines/v/pipeline.sql" in refused.value.message


def test_grants_stay_when_the_columns_change(postgres: Any) -> None:
    base = Base(postgres_database(postgres(), cast(SparkSession, FileReader())))
    base.database.execute("CREATE TABLE orders (id bigint, status text)")
    base.make("SELECT id, status FROM orders")
    base.database.execute('DROP ROLE IF EXISTS "the reader"')
    base.database.execute('CREATE ROLE "the reader"')
    try:
        base.database.execute('GRANT SELECT ON v TO "the reader", PUBLIC')
        base.make("SELECT status FROM orders")
        with psycopg.connect(base.database.where) as connection:
            granted = connection.execute(
                "SELECT has_table_privilege('the reader', 'v', 'SELECT'), relacl::text FROM pg_class "
                "WHERE oid = 'v'::regclass"
            ).fetchone()
        assert granted is not None and granted[0] is True
        assert "=r/" in str(granted[1])
    finally:
        base.database.execute('DROP OWNED BY "the reader"')
        base.database.execute('DROP ROLE "the reader"')
