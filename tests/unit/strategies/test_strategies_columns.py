"""Which types hold every value of another, and what a load does to the table's columns."""

from __future__ import annotations

import pytest

from tallymark.errors import PlanError, TypeConflict
from tallymark.model.plan import AddColumn, ChangeType
from tallymark.model.settings import MergeSettings, SchemaEvolution, Strategy
from tallymark.model.table import PROVENANCE_COLUMNS, Column, TableShape
from tallymark.strategies.columns import compared, widens, written_columns

TABLE = TableShape((Column("id", "bigint"), Column("name", "string")), "1")


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("int", "double", True),
        ("bigint", "double", False),
        ("bigint", "decimal(19,0)", True),
        ("bigint", "decimal(19,1)", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,5)", False),
        ("decimal(10,2)", "double", False),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("void", "struct<a:int>", True),
        ("string", "varchar(3)", False),
        ("struct<a:int>", "struct<a:bigint>", False),
    ],
)
def test_wider_types(given: str, wanted: str, fits: bool) -> None:
    assert widens(given, wanted) == fits


def test_a_narrower_value_takes_the_type_of_the_table_and_new_columns_come_last() -> None:
    incoming = [Column("extra", "date"), Column("ID", "int"), Column("name", "string")]
    written = written_columns(incoming, TABLE, SchemaEvolution.ADD, may_change_types=False)
    assert written.columns == (*TABLE.columns, Column("extra", "date"))
    assert written.changes == (AddColumn(Column("extra", "date")),)


def test_a_type_that_does_not_fit_is_refused_unless_the_table_is_rewritten() -> None:
    incoming = [Column("id", "string"), Column("name", "string")]
    with pytest.raises(TypeConflict, match="column id is string in the batch and bigint in the table"):
        written_columns(incoming, TABLE, SchemaEvolution.ADD, may_change_types=False)
    written = written_columns(incoming, TABLE, SchemaEvolution.ADD, may_change_types=True)
    assert written.changes == (ChangeType("id", "bigint", "string"),)


def test_a_required_column_that_the_batch_lacks_is_named() -> None:
    table = TableShape((Column("id", "bigint"), Column("day", "date", nullable=False)), "1")
    with pytest.raises(PlanError, match="column day of the table is NOT NULL"):
        written_columns([Column("id", "bigint")], table, SchemaEvolution.ADD, may_change_types=False)


def test_rows_are_compared_in_what_the_user_delivers_or_names() -> None:
    given = [Column("ID", "bigint"), Column("name", "string"), Column("at", "date"), *PROVENANCE_COLUMNS]

    def names(*chosen: str) -> list[str]:
        settings = MergeSettings(Strategy.UPSERT, ("id",), compare_columns=chosen)
        return [column.name for column in compared(settings, given, ["AT"])]

    assert names() == ["name"]
    assert names("NAME", "at") == ["name", "at"]
