"""Every expression that a view may contain gives the same result as in Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlglot import parse_one

from tallymark.destinations.contract import ViewQuery, Views
from tallymark.destinations.warehouse.translate import ALLOWED
from unit.destinations.databases import Database

WORDS = (
    *("id + 1", "id - 1", "id * 2", "id / 2", "amount / 4", "amount / 0", "-id", "id % 2", "-id % 2"),
    *(
        "abs(-amount)",
        "round(amount, 1)",
        "round(-amount, 1)",
        "floor(amount)",
        "ceil(amount)",
        "floor(-amount)",
    ),
    *(
        "CAST(amount AS INT)",
        "CAST(-amount AS BIGINT)",
        "CAST(amount AS DOUBLE)",
        "CAST(amount AS DECIMAL(12,1))",
    ),
    *("CAST(id AS DECIMAL(9,2))", "CAST(id AS STRING)", "CAST(at AS DATE)", "CAST(date(at) AS STRING)"),
    *("CAST('7' AS INT)", "CAST(NULL AS DATE)", "CAST('1.25' AS DECIMAL(3,2)) * amount", "DATE '2026-01-31'"),
    *(
        "status || 'x'",
        "concat(status, 'y', status)",
        "concat(status, NULL)",
        "length(status)",
        "length('äö')",
    ),
    *(
        "trim(concat(' ', status, ' '))",
        "substring(status, 2)",
        "substring(status, 2, 2)",
        "'it''s'",
        r"'it\'s \u00e4'",
        '\'a\' "b""c"',
        "NULL",
        "TRUE",
    ),
    *("date(at)", "to_date(at)", "to_date('2026-01-05')", "year(at)", "month(at)", "day(at)"),
    *("datediff(at, '2026-01-01')", "datediff(date(at), DATE '2026-02-03')"),
    *("coalesce(amount, 0)", "nvl(status, 'none')", "nullif(id, 2)", "if(id = 2, 'two', 'other')"),
    *("CASE id WHEN 1 THEN 'a' END", "CASE WHEN amount > 10 THEN 1 WHEN amount IS NULL THEN 2 ELSE 3 END"),
    *(
        "id = 2 OR status = 'new'",
        "NOT id > 1 AND amount < 100",
        "status IN ('new', 'x')",
        "id NOT IN (1, 2)",
    ),
    *("id BETWEEN 2 AND 3", "amount <=> NULL", "amount IS NOT NULL", "amount > 9.6", "NOT status <=> 'new'"),
    *(
        "status LIKE '%ai_'",
        "status NOT LIKE 'P%'",
        "'a*b[c' LIKE 'a*%[_'",
        "status LIKE 'P'",
        "status < 'a'",
    ),
    *(
        "at > '2026-02-01'",
        "at >= '2026-02-01'",
        "at = TIMESTAMP '2026-02-01 00:00:00'",
        "at < '2026-02-01 13:00:00'",
    ),
    *(
        "date(at) <= DATE '2026-01-31'",
        "date(at) BETWEEN '2026-01-01' AND '2026-01-31'",
        "date(at) IN ('2026-02-01')",
    ),
    *("id IN (SELECT max(id) FROM orders)", "EXISTS (SELECT 1 FROM orders AS o WHERE o.id = orders.id + 1)"),
    *("row_number() OVER (ORDER BY id DESC)", "rank() OVER (ORDER BY length(status))"),
    *("dense_rank() OVER (ORDER BY length(status))", "lag(id) OVER (ORDER BY id)"),
    *("lead(status, 1) OVER (ORDER BY id)", "sum(amount) OVER (ORDER BY id)", "max(at) OVER ()"),
    *("sum(id) OVER (PARTITION BY length(status))", "row_number() OVER (ORDER BY amount)"),
    *("(SELECT sum(amount) FROM orders)", "(SELECT avg(id) FROM orders)", "(SELECT avg(amount) FROM orders)"),
    *(
        "(SELECT count(*) FILTER (WHERE id > 1) FROM orders)",
        "(SELECT count(DISTINCT length(status)) FROM orders)",
    ),
    *(
        "(SELECT sum(id) FROM orders WHERE id > 9)",
        "(SELECT min(at) FROM orders)",
        "(SELECT max(amount) FROM orders)",
    ),
    *("(id = 1 OR id = 3) AND id < 3", "amount IS DISTINCT FROM NULL", "date(at) < current_date()"),
    *("sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",),
    *("(SELECT count(amount) FROM orders)", "(SELECT sum(id) FILTER (WHERE id > 1) FROM orders)"),
)
NOT_IN_SQLITE = (
    *(
        "upper(concat(status, 'ä'))",
        "lower(concat(status, 'Ä'))",
        "greatest(amount, 10)",
        "least(amount, 10)",
    ),
    *("date_trunc('month', at)", "date_trunc('week', at)", "at < current_timestamp()"),
)
QUERIES = (
    "SELECT id FROM orders WHERE id > 1 INTERSECT SELECT id FROM orders WHERE id < 3",
    "SELECT id FROM orders EXCEPT SELECT id FROM orders WHERE id = 1",
    "SELECT length(status) AS n FROM orders UNION SELECT id FROM orders",
    "SELECT length(status) AS n, count(*) AS c FROM orders GROUP BY length(status) HAVING count(*) > 1",
    "SELECT length(status) AS n, count(*) AS c FROM orders GROUP BY 1",
    "SELECT id FROM orders ORDER BY amount LIMIT 1",
    "SELECT id FROM orders ORDER BY amount DESC LIMIT 1 OFFSET 1",
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY length(status) ORDER BY id DESC) AS n FROM orders) "
    "AS numbered WHERE n = 1",
    "SELECT a.id, b.status FROM orders a LEFT JOIN orders b ON a.id = b.id - 1",
    "SELECT a.id, b.id AS other FROM orders a FULL JOIN orders b ON a.id = b.id - 1",
    "SELECT id FROM orders LEFT ANTI JOIN (SELECT id FROM orders WHERE id = 2) AS two USING (id)",
    "SELECT id FROM orders LEFT SEMI JOIN (SELECT id FROM orders WHERE id = 2) AS two USING (id)",
    "SELECT DISTINCT length(status) AS n FROM orders",
    "SELECT id AS n, n * 2 AS twice FROM orders",
    "WITH paid AS (SELECT * FROM orders WHERE status <> 'new') SELECT p.* FROM paid AS p WHERE ID > 2",
    "SELECT * EXCEPT (amount, _source_file) FROM orders",
    "SELECT (SELECT max(id) FROM orders) AS most",
)
ORDERS = (
    "SELECT * FROM VALUES (1L, 'new', CAST(9.50 AS DECIMAL(12,2)), TIMESTAMP '2026-01-31 23:00:00Z', 'a.csv'), "
    "(2L, 'Paid', 10.25, TIMESTAMP '2026-02-01 00:00:00Z', 'a.csv'), "
    "(3L, 'paid', NULL, TIMESTAMP '2026-02-01 12:30:00Z', 'b.csv') AS t(id, status, Amount, `at`, _source_file)"
)
_answers: dict[str, list[dict[str, object]]] = {}  # of Spark, for all engines


def test_the_whole_list_is_tried() -> None:
    tried = [*QUERIES, *(f"SELECT {word} AS c FROM orders" for word in WORDS + NOT_IN_SQLITE)]
    found = {type(node) for query in tried for node in parse_one(query, dialect="spark").walk()}
    assert found == ALLOWED


def test_every_word_gives_what_it_gives_in_spark(database: Database) -> None:
    views = _with_orders(database)
    words = WORDS if database.kind == "sqlite" else WORDS + NOT_IN_SQLITE
    named = ", ".join(f"{word} AS c{number}" for number, word in enumerate(words))
    query = f"SELECT id AS k, {named} FROM orders"
    expected, found = _asked_of_spark(database.spark, query), _asked(database, views, query)
    differing = {
        words[int(name[1:])]: (row[name], other[name])
        for row, other in zip(expected, found, strict=True)
        for name in row
        if name != "k" and row[name] != other[name]
    }
    assert differing == {}


@pytest.mark.slow
def test_every_clause_gives_what_it_gives_in_spark(database: Database) -> None:
    views = _with_orders(database)
    differing = {}
    for query in QUERIES:
        expected, found = _asked_of_spark(database.spark, query), _asked(database, views, query)
        if found != [{n: v for n, v in row.items() if n != "_source_file"} for row in expected]:
            differing[query] = (expected, found)
    assert differing == {}


def _with_orders(database: Database) -> Views:
    native = database.engine.native_type
    database.execute(
        f"CREATE TABLE orders (id {native('bigint')}, status {native('string')}, "
        f'"Amount" {native("decimal(12,2)")}, "at" {native("timestamp")}, _source_file {native("string")})'
    )
    database.execute(
        "INSERT INTO orders VALUES (1, 'new', '9.50', '2026-01-31 23:00:00.000000+00:00', 'a.csv'), "
        "(2, 'Paid', '10.25', '2026-02-01 00:00:00.000000+00:00', 'a.csv'), "
        "(3, 'paid', NULL, '2026-02-01 12:30:00.000000+00:00', 'b.csv')"
    )
    views = database.destination.views
    assert views is not None
    return views


def _asked(database: Database, views: Views, query: str) -> list[dict[str, object]]:
    planned = views.plan("v", ViewQuery(query, {"orders": "orders"}, "pipeline.sql"))
    with database.engine.session(writes=False) as session:
        names, rows = session.fetch_named(planned.sql)
    return _sorted([dict(zip(names, map(_plain, row), strict=True)) for row in rows])


def _asked_of_spark(spark: SparkSession, query: str) -> list[dict[str, object]]:
    """Its times as texts, since Python gets them in the zone of the machine."""
    if query not in _answers:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.ansi.enabled", "false")  # a division by zero is NULL, as it is in views
        spark.sql(ORDERS).createOrReplaceTempView("orders")
        frame = spark.sql(query)
        moments = [name for name, kind in frame.dtypes if kind in ("date", "timestamp")]
        texts = frame.selectExpr(
            *(f"CAST(`{n}` AS STRING) AS `{n}`" if n in moments else f"`{n}`" for n in frame.columns)
        )
        rows = [row.asDict() for row in texts.collect()]
        _answers[query] = _sorted([{name: _plain(value) for name, value in row.items()} for row in rows])
    return _answers[query]


def _plain(value: Any) -> object:
    """Types are the engine's own: numbers have one value whatever their type."""
    match value:
        case int() | float() | Decimal():
            return round(float(value), 9)
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
        case date():
            return value.isoformat()
        case str() if value[:2] == "20" and value[4:5] == "-":
            at = datetime.fromisoformat(value)
            return value if len(value) == 10 else at.replace(tzinfo=None).isoformat()
        case _:
            return value


def _sorted(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: repr(list(row.values())))
