"""Names, texts and conditions in the SQL of each engine, and of one without tuples in IN."""

from __future__ import annotations

import sqlite3

import pytest

from oracle import canonical
from tallymark.destinations.duckdb.types import DIALECT as DUCKDB
from tallymark.destinations.postgres.types import DIALECT as POSTGRES
from tallymark.destinations.sqlite.engine import DIALECT as SQLITE
from tallymark.destinations.warehouse.engine import SqlDialect, TableName
from tallymark.model.settings import MergeSettings, Strategy
from unit.destinations.databases import Database

BIGQUERY = SqlDialect("bigquery", has_tuple_in=False)
ODD = ["plain", "it's", 'quo"te', "back\\slash", "tab\tnew\nline", '{"a": "\\u00e4\\n"}', "größe 🙂", ""]


@pytest.mark.parametrize("dialect", [POSTGRES, SQLITE, DUCKDB])
def test_names_are_in_double_quotes_and_texts_in_single_ones(dialect: SqlDialect) -> None:
    for odd in ODD:
        assert dialect.quote(odd) == '"' + odd.replace('"', '""') + '"'
        assert dialect.text(odd) == "'" + odd.replace("'", "''") + "'"


def test_a_table_has_all_its_parts() -> None:
    name = TableName("hr", 'sta"ff', "key", catalog="hr")
    assert POSTGRES.table(name) == '"hr"."hr"."sta""ff"'
    assert POSTGRES.schema(name) == '"hr"."hr"'
    assert SQLITE.table(TableName(None, "silver.orders", "key")) == '"silver.orders"'
    assert BIGQUERY.table(TableName("silver", "orders", "key")) == "`silver`.`orders`"


def test_quoting_follows_the_dialect() -> None:
    assert BIGQUERY.quote_list(["a", "b"], "t") == "t.`a`, t.`b`"
    assert BIGQUERY.text("it's") == r"'it\'s'"


def test_keys_of_a_batch_by_tuples() -> None:
    assert POSTGRES.key_in("t", ("a", "b"), "keys", "TRUE") == (
        '(t."a", t."b") IN (SELECT o."a", o."b" FROM "keys" AS o '
        'WHERE TRUE AND o."a" IS NOT NULL AND o."b" IS NOT NULL)'
    )


def test_keys_of_a_batch_without_tuples() -> None:
    assert BIGQUERY.key_in("t", ("a", "b"), "keys", "TRUE") == (
        "EXISTS (SELECT 1 FROM `keys` AS o WHERE TRUE AND o.`a` = t.`a` AND o.`b` = t.`b`)"
    )


@pytest.mark.parametrize("has_tuple_in", [True, False])
def test_both_forms_find_the_same_rows(has_tuple_in: bool) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (a, b)")
    database.execute("CREATE TABLE keys (a, b, label)")
    database.execute("INSERT INTO t VALUES (1, 1), (1, 2), (1, NULL), (NULL, NULL), (3, 3)")
    database.execute("INSERT INTO keys VALUES (1, 1, 'x'), (1, NULL, 'x'), (NULL, NULL, 'x'), (3, 3, 'y')")
    dialect = SqlDialect("sqlite", has_tuple_in=has_tuple_in)
    condition = dialect.key_in("t", ("a", "b"), "keys", "o.label = 'x'")
    found = database.execute(f"SELECT * FROM t WHERE {condition}")
    assert found.fetchall() == [(1, 1)]
    database.close()


def test_null_safe_comparison() -> None:
    assert SQLITE.same("o", "t", ["a", "b"]) == 'o."a" IS t."a" AND o."b" IS t."b"'
    assert POSTGRES.same("o", "t", ["a"]) == 'o."a" IS NOT DISTINCT FROM t."a"'
    assert POSTGRES.any_null("o", ["a", "b"]) == 'o."a" IS NULL OR o."b" IS NULL'


STRATEGIES = {
    "delete_insert": MergeSettings(Strategy.DELETE_INSERT, unique_key=("k", "part")),
    "full_merge": MergeSettings(Strategy.FULL_MERGE, unique_key=("k", "part"), max_delete_fraction=1),
    "upsert": MergeSettings(Strategy.UPSERT, unique_key=("k", "part")),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_engine_without_tuples_loads_the_same_rows(
    database: Database, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, settings = type(database.engine), STRATEGIES[strategy]
    schema = "k int, part string, v string"
    before = [{"k": k, "part": part, "v": "a"} for k in (1, 2, 3) for part in ("p", "q")]
    batch = [{"k": 1, "part": "p", "v": "b"}, {"k": 9, "part": "p", "v": "new"}]
    found = {}
    for has_tuple_in in (True, False):
        own = database.engine.dialect
        dialect = SqlDialect(own.sqlglot, own.null_safe, has_tuple_in)
        table = f"t_{has_tuple_in}"
        with monkeypatch.context() as patched:
            patched.setattr(engine, "dialect", dialect)
            database.load(table, settings, schema, before)
            counts = database.load(table, settings, schema, batch)
        found[has_tuple_in] = (counts, canonical(database.rows(table)))
    assert found[True] == found[False]
