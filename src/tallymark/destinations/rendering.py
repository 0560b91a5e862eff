"""Turns a query of a plan into the SQL text of one engine.

Queries are written once. What engines do not agree on stands in them as a named hook (`model.plan`: AS_OF,
ORDERED, COMPARABLE), and the destination says what its engine needs in that place.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tallymark.model.plan import AS_OF, COMPARABLE, ORDERED

Hook = Callable[[exp.Expr, str], exp.Expr]  # value and its Spark type to what stands for the value


def as_it_is(value: exp.Expr, spark_type: str) -> exp.Expr:
    return value


def render(
    query: exp.Query,
    dialect: str,
    *,
    as_of: exp.Expr,
    ordered: Hook = as_it_is,
    comparable: Hook = as_it_is,
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
    return mine.sql(dialect=dialect, pretty=pretty)
