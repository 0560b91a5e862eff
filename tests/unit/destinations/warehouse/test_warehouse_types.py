"""Types and values come back as they went in."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from oracle import Row, canonical
from tallymark.errors import DestinationError, Unsupported
from tallymark.model.settings import MergeSettings, Strategy
from unit.destinations.databases import Database

APPEND = MergeSettings(Strategy.APPEND_ONLY)
REFRESH = MergeSettings(Strategy.FULL_REFRESH)
UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("k",))

COLUMNS = {
    "k": "int",
    "a_tiny": "tinyint",
    "a_small": "smallint",
    "a_big": "bigint",
    "a_float": "float",
    "a_double": "double",
    "a_decimal": "decimal(38,10)",
    "a_price": "decimal(12,2)",
    "a_text": "string",
    "a_flag": "boolean",
    "a_day": "date",
    "a_time": "timestamp",
    "a_wall": "timestamp_ntz",
    "some_bytes": "binary",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
NESTED = "k int, s struct<a:bigint,b:array<string>>, m map<string,int>, l array<struct<x:decimal(5,2)>>"

ROWS: list[Row] = [
    {
        "k": 1,
        "a_tiny": -128,
        "a_small": 32767,
        "a_big": -(2**63),
        "a_float": 0.5,
        "a_double": 0.1,
        "a_decimal": Decimal("1234567890123456789012345678.0000000001"),
        "a_price": Decimal("-0.05"),
        "a_text": "tab\t new\n cr\r back\\slash \\N 'quote' \"double\" größe 🙂",
        "a_flag": True,
        "a_day": date(1, 1, 1),
        "a_time": datetime(2026, 11, 1, 10, 15, 0, 123456),
        "a_wall": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "some_bytes": b"\x00\xff\\x",
    },
    {
        "k": 2,
        "a_tiny": 127,
        "a_small": 0,
        "a_big": 2**63 - 1,
        "a_float": float("inf"),
        "a_double": float("nan"),
        "a_decimal": Decimal("0E-10"),
        "a_price": Decimal("9999999999.99"),
        "a_text": "",
        "a_flag": False,
        "a_day": date(9999, 12, 31),
        "a_time": datetime(1969, 12, 31, 23, 59, 59, 999999),
        "a_wall": datetime(1, 1, 1),
        "some_bytes": b"",
    },
    {"k": 3},
]


def test_values_of_every_type_come_back(database: Database) -> None:
    database.load(database.silver("things"), UPSERT, SCHEMA, ROWS)
    assert canonical(database.rows(database.silver("things"))) == canonical(ROWS)
    assert database.load(database.silver("things"), UPSERT, SCHEMA, ROWS).unchanged == 3


def test_inspect_gives_the_types_back(database: Database) -> None:
    database.load(database.silver("things"), APPEND, SCHEMA, ROWS[:1])
    found = database.destination.table(database.silver("things")).shape()
    assert found is not None
    smallest = "smallint" if database.kind == "postgres" else "tinyint"
    assert {c.name: c.type for c in found.columns} == COLUMNS | {"a_tiny": smallest}


def test_samples_show_python_values(database: Database) -> None:
    database.load("things", UPSERT, SCHEMA, ROWS)
    plan = database.plan("things", UPSERT, SCHEMA)
    changed = [{**row, "a_text": "changed"} for row in ROWS]
    with database.prepare(plan, SCHEMA, changed, for_commit=False) as prepared:
        samples = prepared.samples(10)
    assert canonical([s.before or {} for s in samples]) == canonical(ROWS)
    assert canonical([s.after or {} for s in samples]) == canonical(changed)


def test_nested_values_come_back(database: Database) -> None:
    row = {"k": 1, "s": {"a": 5, "b": ["x", None]}, "m": {"a": 1}, "l": [{"x": Decimal("1.50")}]}
    database.load("things", UPSERT, NESTED, [row, {"k": 2}])
    found = min(database.rows("things"), key=lambda each: each["k"])
    assert (found["s"], found["m"]) == (row["s"], row["m"])
    assert database.load("things", UPSERT, NESTED, [row]).unchanged == 1
    shape = database.destination.table("things").shape()
    assert shape is not None
    native = {c.name: c.type for c in shape.columns}
    expected = "struct<a:bigint,b:array<string>>" if database.kind == "duckdb" else "json"
    assert native["s"] == expected


def test_the_last_of_a_key_is_chosen_by_decimal_order(database: Database) -> None:
    settings = MergeSettings(Strategy.INCREMENTAL, unique_key=("k",), watermark_column="v")
    schema = "k int, v decimal(12,2)"
    database.load("t", settings, schema, [{"k": 1, "v": Decimal("9.00")}, {"k": 1, "v": Decimal("10.00")}])
    database.load("t", settings, schema, [{"k": 1, "v": Decimal("-5.00")}, {"k": 1, "v": Decimal("9.50")}])
    assert database.rows("t") == [{"k": 1, "v": Decimal("10.00")}]


def test_texts_are_ordered_by_their_bytes(database: Database) -> None:
    settings = MergeSettings(Strategy.INCREMENTAL, unique_key=("k",), watermark_column="v")
    database.load("t", settings, "k int, v string", [{"k": 1, "v": "a"}, {"k": 1, "v": "B"}])
    assert database.rows("t") == [{"k": 1, "v": "a"}]


def test_a_refresh_may_change_types(database: Database) -> None:
    database.load("t", APPEND, "k int, v string, w int", [{"k": 1, "v": "x", "w": 1}])
    counts = database.load("t", REFRESH, "k int, v bigint, w int", [{"k": 2, "v": 5, "w": 2}])
    assert (counts.inserted, counts.deleted) == (1, 1)
    assert database.rows("t") == [{"k": 2, "v": 5, "w": 2}]


def test_what_cannot_be_stored_is_refused_by_name(database: Database) -> None:
    with pytest.raises(Unsupported, match="interval"):
        database.destination.column_type("interval day to second")


def test_a_text_with_nul(database: Database) -> None:
    rows = [{"k": 1, "v": "a\0b"}]
    if database.kind == "postgres":
        with pytest.raises(DestinationError, match=r"column v: .*NUL"):
            database.load("t", APPEND, "k int, v string", rows)
    else:
        database.load("t", APPEND, "k int, v string", rows)
        assert database.rows("t") == rows


LEGACY = {
    "sqlite": "CREATE TABLE legacy (k INTEGER PRIMARY KEY, u VARCHAR(3), p NUMERIC(10,2), t DATETIME)",
    "duckdb": "CREATE TABLE legacy (k BIGINT PRIMARY KEY, u UUID, p DECIMAL(10,2), t TIMESTAMP)",
    "postgres": "CREATE TABLE legacy (k bigint PRIMARY KEY, u uuid, p numeric(10,2), t timestamp, n varchar(3))",
}
LEGACY_ROW = {
    "k": 1,
    "u": "123e4567-e89b-12d3-a456-426614174000",
    "p": Decimal("1.50"),
    "t": datetime(2026, 11, 1, 10, 15),
}


def test_a_table_made_by_others_keeps_its_types(database: Database) -> None:
    database.execute(LEGACY[database.kind])
    schema = "k bigint, u string, p decimal(10,2), t timestamp_ntz"
    row = LEGACY_ROW
    assert database.load("legacy", UPSERT, schema, [row]).inserted == 1
    assert database.load("legacy", UPSERT, schema, [row, {**row, "k": 2}]).unchanged == 1
    assert database.load("legacy", UPSERT, schema, [{**row, "p": Decimal("2.50")}]).updated == 1
    assert [str(v) for (v,) in database.execute("SELECT u FROM legacy")] == [row["u"]] * 2


def test_a_value_that_does_not_fit_names_its_column(database: Database) -> None:
    if database.kind == "sqlite":
        pytest.skip("SQLite's types refuse nothing")
    database.execute(LEGACY[database.kind])
    with pytest.raises(DestinationError, match="column u: "):
        database.load("legacy", UPSERT, "k bigint, u string", [{"k": 1, "u": "no uuid"}])
    assert database.rows("legacy") == []
