"""Which columns a load writes, and how the table's schema may change for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from tallymark.errors import PlanError, TypeConflict
from tallymark.model.plan import COMPARABLE, ORDERED, RANK, AddColumn, ChangeType, SchemaChange
from tallymark.model.settings import MergeSettings, SchemaEvolution
from tallymark.model.table import JSON_TYPE, Column, TableShape, find_column, is_provenance
from tallymark.model.types import Primitive, stored_type

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDER = {("float", "double"), ("date", "timestamp_ntz")}


@dataclass(frozen=True)
class WrittenColumns:
    columns: tuple[Column, ...]  # in the table's order, new ones last
    changes: tuple[SchemaChange, ...]


def written_columns(
    incoming: Sequence[Column],
    current: TableShape | None,
    evolution: SchemaEvolution,
    *,
    may_change_types: bool,
) -> WrittenColumns:
    """The table's columns come first and keep their names and types: a type is never narrowed."""
    if current is None:
        return WrittenColumns(tuple(incoming), ())
    columns: list[Column] = []
    changes: list[SchemaChange] = []
    for column in current.columns:
        given = find_column(incoming, column.name)
        if given is None:
            _refuse_missing(column)
        elif given.type != column.type and not widens(given.type, column.type):
            if not may_change_types:
                raise _conflict(column, given)
            changes.append(ChangeType(column.name, column.type, given.type))
            columns.append(Column(column.name, given.type))
            continue
        columns.append(column)
    for column in incoming:
        if current.column(column.name) is not None or evolution is SchemaEvolution.IGNORE:
            continue
        if evolution is SchemaEvolution.FAIL:
            raise PlanError(
                f"column {column.name} ({column.type}) is new, and schema_evolution is fail",
                hint="set schema_evolution: add or ignore, or remove the column from the source",
            )
        changes.append(AddColumn(column))
        columns.append(Column(column.name, column.type))
    return WrittenColumns(tuple(columns), tuple(changes))


def widens(given: str, wanted: str) -> bool:
    """Whether every value of type `given` fits type `wanted` without loss."""
    match stored_type(given), stored_type(wanted):
        case Primitive(name="void"), _:
            return True
        case Primitive(name=whole), Primitive(name=wider) if whole in _DIGITS and wider in _DIGITS:
            return _DIGITS[whole] <= _DIGITS[wider]
        case Primitive(name=whole), Primitive(name="decimal", sizes=sizes) if whole in _DIGITS:
            return _fits((_DIGITS[whole], 0), sizes)
        case Primitive(name=whole), Primitive(name="double") if whole in _DIGITS:
            return whole != "bigint"
        case Primitive(name="decimal", sizes=sizes), Primitive(name="decimal", sizes=wider_sizes):
            return _fits(sizes, wider_sizes)
        case one, other:
            return (one.family, other.family) in _WIDER


def _fits(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Digits before and behind the point, each as (precision, scale)."""
    return wanted[1] >= given[1] and wanted[0] - wanted[1] >= given[0] - given[1]


def _refuse_missing(column: Column) -> None:
    if not column.nullable:
        raise PlanError(
            f"column {column.name} of the table is NOT NULL, and the batch does not have it",
            hint=f"deliver {column.name}, or rename another column to it by a rule under `columns`",
        )


def _conflict(column: Column, given: Column) -> TypeConflict:
    return TypeConflict(
        f"column {column.name} is {given.type} in the batch and {column.type} in the table, and not every "
        "value fits",
        hint=f"set `type: {column.type}` for {column.name} under `columns` (rows whose value does not fit "
        "are quarantined), or change the type of the table's column",
        facts={"column": column.name, "incoming": given.type, "table": column.type},
    )


def parse(text: str) -> exp.Query:
    query = sqlglot.parse_one(text)
    assert isinstance(query, exp.Query)  # noqa: S101
    return query


def name(column: str, table: str = "") -> str:
    quoted = '"' + column.replace('"', '""') + '"'
    return f"{table}.{quoted}" if table else quoted


def names(columns: Iterable[str], table: str = "") -> str:
    return ", ".join(name(column, table) for column in columns)


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def same_key(keys: Sequence[str], left: str, right: str) -> str:
    return " AND ".join(f"{name(key, left)} = {name(key, right)}" for key in keys)


def comparable(column: Column, value: str) -> str:
    """Maps in Spark and json in PostgreSQL have no equality: the engine compares something else instead."""
    special = "map<" in column.type or column.type == JSON_TYPE
    return f"{COMPARABLE}({value}, {text(column.type)})" if special else value


def ordered(column: Column, value: str) -> str:
    """Engines sort strings, and SQLite decimals, each in its own way: the plan asks for Spark's order."""
    special = column.type == "string" or column.type.startswith("decimal")
    return f"{ORDERED}({value}, {text(column.type)})" if special else value


def latest_first(order: Sequence[Column], table: str = "") -> str:
    """NULL counts as oldest."""
    return ", ".join(f"{ordered(c, name(c.name, table))} DESC NULLS LAST" for c in order)


def rank(columns: Sequence[str], order: Sequence[Column], also: Sequence[str] = ()) -> str:
    """The rank of a row, latest first, among the rows of the batch that share `columns` and the expressions
    `also`. Sorting the batch is expensive; an engine that knows that no rows share them skips it."""
    partition = ", ".join([names(columns), *also])
    window = f"ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY {latest_first(order)})"
    return f"{RANK}({window}, {', '.join(map(text, columns))})"


def oldest_first(order: Sequence[Column], table: str = "") -> str:
    return ", ".join(f"{ordered(c, name(c.name, table))} ASC NULLS FIRST" for c in order)


def older(order: Sequence[Column], left: str, right: str, *, or_equal: bool = False) -> str:
    """Whether `left` comes before `right`, column by column; NULL counts as oldest."""
    if not order:
        return "TRUE" if or_equal else "FALSE"
    first, rest = order[0], order[1:]
    mine, theirs = name(first.name, left), name(first.name, right)
    less = f"({ordered(first, mine)} < {ordered(first, theirs)} OR ({mine} IS NULL AND {theirs} IS NOT NULL))"
    same = f"({mine} = {theirs} OR ({mine} IS NULL AND {theirs} IS NULL))"
    return f"({less} OR ({same} AND {older(rest, left, right, or_equal=or_equal)}))"


def differs(column: Column, mine: str, theirs: str) -> str:
    return f"{comparable(column, mine)} IS DISTINCT FROM {comparable(column, theirs)}"


def any_differs(columns: Sequence[Column], left: str, right: str, current: TableShape | None) -> str:
    """Null-safe, over columns of `left`; a column that the table lacks counts as NULL."""
    parts = [
        differs(c, name(c.name, left), name(c.name, right) if in_table(current, c.name) else "NULL")
        for c in columns
    ]
    return "(" + " OR ".join(parts) + ")" if parts else "FALSE"


def in_table(current: TableShape | None, column: str) -> bool:
    """For the query, a table that the load creates is empty and has all columns."""
    return current is None or current.column(column) is not None


def compared(settings: MergeSettings, given: Sequence[Column], leave_out: Iterable[str] = ()) -> list[Column]:
    """The columns in which a row is compared: those of the batch, or `compare_columns` among them."""
    left_out = {key.casefold() for key in (*settings.unique_key, *leave_out)}
    chosen = {column.casefold() for column in settings.compare_columns}
    if chosen:
        return [c for c in given if c.name.casefold() in chosen]
    return [c for c in given if c.name.casefold() not in left_out and not is_provenance(c.name)]


def resolved(columns: Sequence[Column], wanted: Iterable[str]) -> list[Column]:
    """The columns of these names, in the order of the names."""
    found = [find_column(columns, column) for column in wanted]
    return [column for column in found if column is not None]
