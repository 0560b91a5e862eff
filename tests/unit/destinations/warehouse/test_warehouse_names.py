"""Names of columns match whatever their case, also where a quoted name of another case is another column."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from oracle import canonical
from tallymark.model.settings import CdcSettings, MergeSettings, Scd2Settings, Strategy
from unit.destinations.databases import Database

UPPER, LOWER = "ID int, V string", "id int, v string"


@pytest.mark.parametrize(
    "strategy",
    [Strategy.UPSERT, Strategy.FULL_MERGE, Strategy.DELETE_INSERT, Strategy.DEDUPLICATE, Strategy.SNAPSHOT],
)
def test_a_key_in_another_case_than_the_header(database: Database, strategy: Strategy) -> None:
    settings = MergeSettings(strategy, ("id",), partition_column="id", max_delete_fraction=1.0)
    database.load("t", settings, UPPER, [{"ID": 1, "V": "a"}])
    database.load("t", settings, LOWER, [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}])
    assert canonical(database.rows("t")) == canonical([{"ID": 1, "V": "b"}, {"ID": 2, "V": "c"}])


def test_a_table_of_others_with_names_in_mixed_case(database: Database) -> None:
    database.execute('CREATE TABLE orders ("Id" integer, "Valid_From" text)')
    database.execute("INSERT INTO orders VALUES (1, 'old'), (1, 'older')")
    settings = MergeSettings(Strategy.UPSERT, ("ID",), compare_columns=("VALID_FROM",))
    schema = "id int, valid_from string"
    counts = database.load("orders", settings, schema, [{"id": 1, "valid_from": "new"}])
    assert counts.deleted == 1  # the table's own duplicate
    assert canonical(database.rows("orders")) == canonical([{"Id": 1, "Valid_From": "new"}])


def test_histories_and_feeds_in_another_case(database: Database) -> None:
    dated, first, second = "ID int, V string, AT date", date(2026, 11, 1), date(2026, 11, 2)
    history = MergeSettings(Strategy.SCD2, ("id",), scd2=Scd2Settings(effective_from="at"))
    database.load("h", history, dated, [{"ID": 1, "V": "a", "AT": first}])
    history = replace(history, scd2=Scd2Settings("VALID_FROM", "VALID_TO", effective_from="At"))
    counts = database.load("h", history, dated.lower(), [{"id": 1, "v": "b", "at": second}])
    assert (counts.inserted, counts.closed) == (1, 1)
    feed = MergeSettings(Strategy.CDC, ("id",), cdc=CdcSettings("op", ("n",)))
    changes = "ID int, V string, N int, OP string"
    database.load("f", feed, changes, [{"ID": 1, "V": "a", "N": 1, "OP": "I"}])
    database.load("f", feed, changes.lower(), [{"id": 1, "v": "b", "n": 2, "op": "U"}])
    assert canonical(database.rows("f")) == canonical([{"ID": 1, "V": "b", "N": 2}])
