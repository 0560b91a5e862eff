"""The queries that tell what gates find, for every engine: over AFTER, in sqlglot's terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

from sqlglot import exp

from tallymark.model.gate import AFTER, MOMENT, Check, Gate, MeasureCheck, QueryCheck, RowCheck


def summary_query(gates: Sequence[Gate]) -> exp.Select | None:
    """One look at the table for all rules about rows and measures: a column for each, named by `column_of`,
    with the number of offenders. None when there are no such rules."""
    counted = [
        exp.alias_(found, column_of(position))
        for position, gate in enumerate(gates)
        if (found := _counted(gate.check)) is not None
    ]
    return exp.select(*counted).from_(exp.to_table(AFTER)) if counted else None


def column_of(position: int) -> str:
    return f"tm_gate_{position}"


def is_summed(gate: Gate) -> bool:
    return not isinstance(gate.check, QueryCheck)


def offending_query(check: Check) -> exp.Query:
    """The rows to show."""
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
    """A copy with the engine's own timestamps."""
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
