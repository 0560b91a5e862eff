"""Strategies that compare rows by key: `upsert` and `incremental`, as a table of allowed actions.

The label query is written once, over `incoming` and `current`, and runs where the table lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tallymark.model.plan import (
    CURRENT,
    FILE_ORDER,
    FROM_BATCH,
    INCOMING,
    LABEL,
    ROW_BLOCK,
    ROW_ORDER,
    Label,
    Merge,
)
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column, TableShape, find_column, is_provenance

_RANK = "_tm_rank"
_PRESENT = "_tm_present"
_I, _C = "i", "c"


@dataclass(frozen=True)
class Allowed:
    """What a strategy does to a key of the batch that the table lacks, and to one that differs."""

    new: Label
    changed: Label
    keeps_newer: bool = False  # a table row with a later watermark stays


ALLOWED = {
    Strategy.UPSERT: Allowed(new=Label.INSERT, changed=Label.UPDATE),
    Strategy.INCREMENTAL: Allowed(new=Label.INSERT, changed=Label.UPDATE, keeps_newer=True),
}


def merge_by_key(
    settings: MergeSettings, incoming: Sequence[Column], written: Sequence[Column], current: TableShape | None
) -> Merge:
    allowed = ALLOWED[settings.strategy]
    order = _declared_order(settings)
    ranked = (
        exp.select("*", exp.alias_(_rank(settings.unique_key, order), _RANK, quoted=True))
        .from_(exp.to_table(INCOMING))
        .subquery(_I)
    )
    present = exp.select("*", exp.alias_(exp.true(), _PRESENT, quoted=True)).from_(CURRENT).subquery(_C)
    on = exp.and_(
        _column(_RANK, _I).eq(1), *(_column(key, _I).eq(_column(key, _C)) for key in settings.unique_key)
    )
    labels = (
        exp.select(
            *(_written(column, incoming, current) for column in written),
            exp.alias_(_label(settings, allowed, incoming, current), LABEL, quoted=True),
            exp.alias_(exp.true(), FROM_BATCH, quoted=True),
        )
        .from_(ranked)
        .join(present, on=on, join_type="left")
    )
    ties = _ties(settings.unique_key, order, incoming) if order else None
    return Merge(tuple(settings.unique_key), labels, ties)


def _label(
    settings: MergeSettings, allowed: Allowed, incoming: Sequence[Column], current: TableShape | None
) -> exp.Expr:
    case = exp.Case()
    case = case.when(_column(_RANK, _I) > 1, exp.Literal.string(Label.SKIP))
    case = case.when(_column(_PRESENT, _C).is_(exp.null()), exp.Literal.string(allowed.new))
    if allowed.keeps_newer and settings.watermark_column:
        case = case.when(_older(settings.watermark_column), exp.Literal.string(Label.SKIP))
    differing = [_differs(column, current) for column in compared(settings, incoming)]
    if differing:
        case = case.when(exp.or_(*differing), exp.Literal.string(allowed.changed))
    return case.else_(exp.Literal.string(Label.UNCHANGED))


def compared(settings: MergeSettings, incoming: Sequence[Column]) -> list[Column]:
    keys = {key.casefold() for key in settings.unique_key}
    chosen = {name.casefold() for name in settings.compare_columns}
    return [
        column
        for column in incoming
        if column.name.casefold() not in keys
        and not is_provenance(column.name)
        and (not chosen or column.name.casefold() in chosen)
    ]


def _declared_order(settings: MergeSettings) -> list[str]:
    return [settings.watermark_column] if settings.watermark_column else []


def _rank(keys: Sequence[str], order: Sequence[str]) -> exp.Window:
    """Last by declared order, then by file, then by position. A missing watermark counts as oldest."""
    latest_first = [*order, FILE_ORDER, ROW_BLOCK, ROW_ORDER]
    return _window(exp.RowNumber(), keys, latest_first)


def _ties(keys: Sequence[str], order: Sequence[str], incoming: Sequence[Column]) -> exp.Query:
    """Keys with two different rows of one file that the declared order cannot tell apart.

    Rows of different files are told apart by file order, as if each file had been a batch of its own."""
    top = exp.select("*", exp.alias_(_window(exp.Anonymous(this="RANK"), keys, [*order, FILE_ORDER]), _RANK))
    contents = [column for column in incoming if not is_provenance(column.name)]
    distinct = (
        exp.select(*(exp.alias_(_comparable(c, _column(c.name)), c.name, quoted=True) for c in contents))
        .distinct()
        .from_(top.from_(INCOMING).subquery("ranked"))
        .where(_column(_RANK).eq(1))
    )
    key_columns = [_column(key) for key in keys]
    return (
        exp.select(*key_columns)
        .from_(distinct.subquery("tops"))
        .group_by(*key_columns)
        .having(exp.Count(this=exp.Star()) > 1)
    )


def _window(function: exp.Expr, keys: Sequence[str], latest_first: Sequence[str]) -> exp.Window:
    ordered = [exp.Ordered(this=_column(name), desc=True, nulls_first=False) for name in latest_first]
    return exp.Window(
        this=function,
        partition_by=[_column(key) for key in keys],
        order=exp.Order(expressions=ordered),
    )


def _older(watermark: str) -> exp.Expr:
    mine, theirs = _column(watermark, _I), _column(watermark, _C)
    return exp.or_(mine < theirs, exp.and_(mine.is_(exp.null()), exp.not_(theirs.is_(exp.null()))))


def _differs(column: Column, current: TableShape | None) -> exp.Expr:
    mine = _comparable(column, _column(column.name, _I))
    if current is None or current.column(column.name) is None:
        return exp.not_(mine.is_(exp.null()))
    return exp.NullSafeNEQ(this=mine, expression=_comparable(column, _column(column.name, _C)))


def _comparable(column: Column, value: exp.Expr) -> exp.Expr:
    """Maps have no equality in Spark; their text has."""
    return exp.Anonymous(this="TO_JSON", expressions=[value]) if "map<" in column.type else value


def _written(column: Column, incoming: Sequence[Column], current: TableShape | None) -> exp.Expr:
    """A column that the batch does not have keeps the table's value, so every written row is whole."""
    given = find_column(incoming, column.name)
    value: exp.Expr
    if given is None:
        value = _column(column.name, _C)
    else:
        value = _column(given.name, _I)
        if given.type != column.type:
            value = exp.cast(value, column.type, dialect="spark")
    return exp.alias_(value, column.name, quoted=True)


def _column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(name, table=table, quoted=True)
