"""Queries of plans and gates, written once in sqlglot's terms and rendered as the SQL of one engine.

Where engines differ, a query contains a named hook (`model.plan`: AS_OF, ORDERED, COMPARABLE, RANK), and each
destination says what its engine writes there. Gate queries read the relation AFTER: the table as it is after
the load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

from sqlglot import exp

from tallymark.model.gate import AFTER, MOMENT, Check, Gate, MeasureCheck, QueryCheck, RowCheck
from tallymark.model.plan import AS_OF, COMPARABLE, ORDERED, RANK

Hook = Callable[[exp.Expr, str], exp.Expr]  # a value and its Spark type → what the engine writes for it
Ranking = Callable[[exp.Expr, tuple[str, ...]], exp.Expr]  # a rank and its partition columns → likewise


def keep_value(value: exp.Expr, spark_type: str) -> exp.Expr:
    return value


def rank_by_window(rank: exp.Expr, columns: tuple[str, ...]) -> exp.Expr:
    return rank


def render(
    query: exp.Query,
    dialect: str,
    *,
    as_of: exp.Expr,
    ordered: Hook = keep_value,
    comparable: Hook = keep_value,
    ranking: Ranking = rank_by_window,
    pretty: bool = False,
) -> str:
    """Does not change `query`. Hooks may be nested."""
    hooks = {ORDERED: ordered, COMPARABLE: comparable}
    rendered = query.copy()
    # Innermost nodes first: an outer hook then takes what its operand was replaced by.
    for node in reversed(list(rendered.walk(bfs=True))):
        match node:
            case exp.Placeholder(this=name) if name == AS_OF:
                node.replace(as_of.copy())
            case exp.Anonymous(this=name, expressions=[value, exp.Literal(this=spark_type)]) if name in hooks:
                node.replace(hooks[name](value.copy(), spark_type))
            case exp.Anonymous(this=name, expressions=[rank, *columns]) if name == RANK:
                node.replace(ranking(rank.copy(), tuple(column.name for column in columns)))
    return rendered.sql(dialect=dialect, pretty=pretty)


def summary_query(gates: Sequence[Gate]) -> exp.Select | None:
    """One query that counts the offending rows of all gates about rows and measures. Each gate has one
    column, named by `count_column`. None if there are no such gates."""
    counted = [
        exp.alias_(found, count_column(position))
        for position, gate in enumerate(gates)
        if (found := _counted(gate.check)) is not None
    ]
    return exp.select(*counted).from_(exp.to_table(AFTER)) if counted else None


def count_column(position: int) -> str:
    return f"tm_gate_{position}"


def is_in_summary(gate: Gate) -> bool:
    return not isinstance(gate.check, QueryCheck)


def offending_query(check: Check) -> exp.Query:
    """The offending rows, to show some of them."""
    match check:
        case RowCheck(offends=offends):
            return exp.select("*").from_(exp.to_table(AFTER)).where(offends)
        case MeasureCheck(name=name, measure=measure):
            return exp.select(exp.alias_(measure, name)).from_(exp.to_table(AFTER))
        case QueryCheck(query=query):
            return query
        case _:
            assert_never(check)


def with_moments(query: exp.Query, moment: Callable[[datetime], exp.Expr]) -> exp.Query:
    """A copy of the query in which timestamps are written as the engine writes them."""
    mine = query.copy()
    for node in list(mine.find_all(exp.Anonymous)):
        if node.name == MOMENT:
            node.replace(moment(datetime.fromisoformat(node.expressions[0].name)))
    return mine


def _counted(check: Check) -> exp.Expr | None:
    match check:
        case RowCheck(offends=offends):
            return exp.Count(this=_if(offends, exp.Literal.number(1)))
        case MeasureCheck(offends=offends):
            return _if(offends, exp.Literal.number(1), exp.Literal.number(0))
        case QueryCheck():
            return None
        case _:
            assert_never(check)


def _if(condition: exp.Expr, then: exp.Expr, otherwise: exp.Expr | None = None) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=then)], default=otherwise)
