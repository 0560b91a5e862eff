"""Values become data in the query, whatever is in them."""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp, parse_one, tokenize

from tallymark.templates import TypedValue
from tallymark.templates.context import TemplateFault
from tallymark.templates.literals import identifier, literal, quoted

ATTACKS = [
    "x'; DROP TABLE t; --",
    "\\' OR 1=1",
    "\\",
    "\\\\' OR 1=1 --",
    "''",
    '"; DROP TABLE t; --"',
    "' UNION SELECT password FROM users --",
    "*/ DROP TABLE t /*",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "${env:HOME}",
    "$${x}",
    "a\n-- b",
    "a\r\nb\u2028c\x00d\x1ae",
    "\\u0027",
    "\\x27 OR 1=1",
    "%' OR '%'='",
    "größe ✓ 💥",
    "R'x'",
]


def spark_text(text: str) -> str:
    """What Spark's parser makes of the inside of a literal, by its rules: \\uXXXX, \\', \\\\."""
    result, at = "", 0
    while at < len(text):
        if text[at] != "\\":
            assert text[at] not in "'\n\r$"
            result, at = result + text[at], at + 1
        elif text[at + 1] == "u":
            result, at = result + chr(int(text[at + 2 : at + 6], 16)), at + 6
        else:
            assert text[at + 1] in "\\'"
            result, at = result + text[at + 1], at + 2
    return result


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    "template",
    [
        "SELECT {{ var('x') }} AS a",
        "SELECT {{ var('y', var('x')) }} AS a",
        "SELECT {{ 'b' ~ var('x') }} AS a",
        "SELECT {{ (var('x')) | string }} AS a",
        "SELECT {{ [var('x')] | join('') }} AS a",
        "SELECT {% for c in [var('x')] %}{{ c }}{% endfor %} AS a",
        "SELECT {% set v = var('x') %}{{ v }} AS a",
        "SELECT {{ (ref('a') ~ var('x')) }} AS a",
        "SELECT {{ (('`a`' | identifier) ~ var('x')) }} AS a",
        "SELECT {{ watermark_value }} AS a",
    ],
)
def test_a_value_is_one_literal(query: Callable[..., str], template: str, attack: str) -> None:
    sql = query(template, variables={"x": attack}, watermark=TypedValue(attack, "string"))
    assert sql.startswith("SELECT '")
    assert "${" not in sql
    assert "\n" not in sql
    inside = sql.removeprefix("SELECT '").removesuffix("' AS a")
    assert spark_text(inside).endswith(attack)
    (column,) = parse_one(sql, dialect="spark").expressions
    assert isinstance(column.this, exp.Literal)


@given(st.text(alphabet=st.one_of(st.sampled_from("'\\\"`$\n;-*/u0"), st.characters(codec="utf-8"))))
def test_any_text_is_one_token(text: str) -> None:
    sql = quoted(text)
    assert spark_text(sql[1:-1]) == text
    assert [token.text for token in tokenize(f"SELECT {sql} FROM t", dialect="spark")][2:] == ["FROM", "t"]


@given(st.text(alphabet=st.sampled_from("ab`'\\;- .\"" + string.digits), min_size=1))
def test_any_name_is_one_identifier(name: str) -> None:
    (column,) = parse_one(f"SELECT {identifier(name)} FROM t", dialect="spark").expressions
    assert isinstance(column, exp.Column)
    assert [part.name for part in column.parts] == [name]


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (5, "5"),
        (-5, "(-5)"),
        (2**40, "1099511627776"),
        (True, "TRUE"),
        (None, "NULL"),
        (1.5, "CAST('1.5' AS DOUBLE)"),
        (-1e300, "CAST('-1e+300' AS DOUBLE)"),
        (float("nan"), "CAST('NaN' AS DOUBLE)"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
        (Decimal("12.50"), "CAST('12.50' AS DECIMAL(4,2))"),
        (Decimal("0.001"), "CAST('0.001' AS DECIMAL(3,3))"),
        (Decimal("1E+3"), "CAST('1000' AS DECIMAL(4,0))"),
        (date(2026, 11, 1), "DATE '2026-11-01'"),
        (date(1, 1, 1), "DATE '0001-01-01'"),
        (datetime(2026, 11, 1, 12, 0, 0, 5), "TIMESTAMP_NTZ '2026-11-01 12:00:00.000005'"),
        (datetime(2026, 11, 1, 12, tzinfo=UTC), "TIMESTAMP '2026-11-01 12:00:00.000000+00:00'"),
        (
            datetime(2026, 11, 1, 1, tzinfo=timezone(timedelta(hours=2))),
            "TIMESTAMP '2026-10-31 23:00:00.000000+00:00'",
        ),
        (["a", 1], "'a', 1"),
    ],
)
def test_literals(value: object, sql: str) -> None:
    assert literal(value) == sql


@pytest.mark.parametrize(
    "value", [[], [[1]], {}, b"x", object(), 10**38, Decimal("NaN"), Decimal(10**38), "\ud800"]
)
def test_what_has_no_literal(value: object) -> None:
    with pytest.raises(TemplateFault):
        literal(value)


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "${env:HOME}", 5, [], "\ud800"])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(TemplateFault):
        identifier(name)


@pytest.mark.parametrize(
    ("watermark", "sql"),
    [
        (TypedValue(5, "bigint"), "CAST(5 AS BIGINT)"),
        (TypedValue(-5, "int"), "CAST((-5) AS INT)"),
        (TypedValue(0.1, "float"), "CAST(CAST('0.1' AS DOUBLE) AS FLOAT)"),
        (TypedValue(Decimal("1.5"), "decimal(12,2)"), "CAST(CAST('1.5' AS DECIMAL(2,1)) AS DECIMAL(12,2))"),
        (TypedValue("b", "string"), "'b'"),
        (TypedValue(date(2026, 11, 1), "date"), "DATE '2026-11-01'"),
        (TypedValue(5, "bigint) OR (1=1"), "5"),
    ],
)
def test_watermarks_have_the_type_of_their_column(
    query: Callable[..., str], watermark: TypedValue, sql: str
) -> None:
    assert query("SELECT {{ watermark_value }}", watermark=watermark) == f"SELECT {sql}"


def test_values_compare_in_templates(query: Callable[..., str]) -> None:
    text = "SELECT {{ var('n') > 3 }}, {{ watermark_value >= 5 }}, {{ watermark_value == 6 }}, {{ var('n') + 1 }}"
    facts = {"variables": {"n": 4}, "watermark": TypedValue(5, "bigint")}
    assert query(text, **facts) == "SELECT TRUE, TRUE, FALSE, 5"
