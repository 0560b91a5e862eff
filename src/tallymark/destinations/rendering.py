"""Turns a query of a plan into the SQL text of one engine.

Queries are written once. What engines do not agree on stands in them as a named hook (`model.plan`: AS_OF,
ORDERED, COMPARABLE, RANK), and the destination says what its engine needs in that place.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tallymark.model.plan import AS_OF, COMPARABLE, ORDERED, RANK

Hook = Callable[[exp.Expr, str], exp.Expr]  # value and its Spark type to what stands for the value
Ranking = Callable[[exp.Expr, tuple[str, ...]], exp.Expr]  # rank and what it is among to what stands for it


def as_it_is(value: exp.Expr, spark_type: str) -> exp.Expr:
    return value


def by_window(rank: exp.Expr, columns: tuple[str, ...]) -> exp.Expr:
    return rank


def render(
    query: exp.Query,
    dialect: str,
    *,
    as_of: exp.Expr,
    ordered: Hook = as_it_is,
    comparable: Hook = as_it_is,
    ranking: Ranking = by_window,
    pretty: bool = False,
) -> str:
    """`query` itself stays as it is. Hooks may stand inside each other."""
    hooks = {ORDERED: ordered, COMPARABLE: comparable}
    mine = query.copy()
    for node in reversed(list(mine.walk(bfs=True))):  # the innermost first: what it becomes is moved along
        match node:
            case exp.Placeholder(this=name) if name == AS_OF:
                node.replace(as_of.copy())
            case exp.Anonymous(this=name, expressions=[value, exp.Literal(this=spark_type)]) if name in hooks:
                node.replace(hooks[name](value.copy(), spark_type))
            case exp.Anonymous(this=name, expressions=[rank, *columns]) if name == RANK:
                node.replace(ranking(rank.copy(), tuple(column.name for column in columns)))
    return mine.sql(dialect=dialect, pretty=pretty)
