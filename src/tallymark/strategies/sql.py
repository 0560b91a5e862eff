"""Pieces of label queries. Queries are written as SQL text in sqlglot's own dialect and parsed once, so that
the code reads like the SQL that runs. Names are always quoted, by `name`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlglot
from sqlglot import exp

from tallymark.model.plan import COMPARABLE, ORDERED, RANK
from tallymark.model.settings import MergeSettings
from tallymark.model.table import JSON_TYPE, Column, TableShape, find_column, is_provenance


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
