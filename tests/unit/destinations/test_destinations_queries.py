from __future__ import annotations

import sqlglot
from sqlglot import exp

from tallymark.destinations.queries import render

AS_OF = exp.Literal.string("now")


def query(text: str) -> exp.Query:
    parsed = sqlglot.parse_one(text)
    assert isinstance(parsed, exp.Query)
    return parsed


def in_c(value: exp.Expr, spark_type: str) -> exp.Expr:
    return (
        exp.Collate(this=value, expression=exp.to_identifier("C", quoted=True))
        if spark_type == "string"
        else value
    )


def as_json(value: exp.Expr, spark_type: str) -> exp.Expr:
    return exp.func("TO_JSON", value) if "map<" in spark_type else value


def test_hooks_become_what_the_engine_needs() -> None:
    plan = query("SELECT TM_ORDERED(a, 'string'), TM_COMPARABLE(b, 'map<string,int>'), :as_of FROM incoming")
    sql = render(plan, "postgres", as_of=AS_OF, ordered=in_c, comparable=as_json)
    assert sql == "SELECT a COLLATE \"C\", TO_JSON(b), 'now' FROM incoming"
    assert "TM_ORDERED" in plan.sql()


def test_hooks_are_found_inside_each_other_and_in_subqueries() -> None:
    plan = query(
        "SELECT * FROM (SELECT MAX(TM_ORDERED(TM_COMPARABLE(m, 'map<a,b>'), 'string')) AS m FROM x "
        "WHERE TM_ORDERED(:as_of, 'timestamp') > 1) AS s"
    )
    sql = render(plan, "postgres", as_of=AS_OF, ordered=in_c, comparable=as_json)
    assert sql == ("SELECT * FROM (SELECT MAX(TO_JSON(m) COLLATE \"C\") AS m FROM x WHERE 'now' > 1) AS s")


def test_without_hooks_of_its_own_an_engine_gets_the_values() -> None:
    assert render(query("SELECT TM_ORDERED(a, 'string') FROM x"), "spark", as_of=AS_OF) == "SELECT a FROM x"


def test_a_rank_is_a_window_unless_the_engine_knows_better() -> None:
    plan = query(
        "SELECT TM_RANK(ROW_NUMBER() OVER (PARTITION BY a, b ORDER BY TM_ORDERED(c, 'string')), 'a', 'b') FROM x"
    )
    window = 'ROW_NUMBER() OVER (PARTITION BY a, b ORDER BY c COLLATE "C")'
    assert render(plan, "sqlite", as_of=AS_OF, ordered=in_c) == f"SELECT {window} FROM x"
    asked = []

    def unique(rank: exp.Expr, columns: tuple[str, ...]) -> exp.Expr:
        asked.append((rank.sql(), columns))
        return exp.Literal.number(1)

    assert render(plan, "sqlite", as_of=AS_OF, ordered=in_c, ranking=unique) == "SELECT 1 FROM x"
    assert asked == [(window, ("a", "b"))]
