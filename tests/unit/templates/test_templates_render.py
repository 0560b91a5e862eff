"""Rendering: which branch a load takes, which names it asked for, and which line an error is in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tallymark.errors import SourceError
from tallymark.model.settings import Strategy
from tallymark.templates import Rendered, TypedValue

LATER = TypedValue(datetime(2026, 10, 31, tzinfo=UTC), "timestamp")
QUESTION = "SELECT {{ is_incremental() }}"


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ({}, False),
        ({"watermark": LATER}, True),
        ({"watermark": LATER, "full_refresh": True}, False),
        ({"watermark": LATER, "strategy": Strategy.UPSERT}, False),
        ({"table_exists": True}, True),
        # An empty first load has left a table and no watermark: there is nothing to compare with.
        ({"table_exists": True, "watermark_column": "updated_at"}, False),
        ({"table_exists": True, "watermark_column": "updated_at", "watermark": LATER}, True),
    ],
)
def test_is_incremental(query: Callable[..., str], facts: dict[str, object], answer: bool) -> None:
    assert query(QUESTION, **facts) == f"SELECT {str(answer).upper()}"


@pytest.mark.parametrize("strategy", Strategy)
def test_one_question_for_each_strategy(query: Callable[..., str], strategy: Strategy) -> None:
    text = "SELECT " + ", ".join(f"{{{{ is_{other}() }}}} AS {other}" for other in Strategy)
    normal = query(text, strategy=strategy, table_exists=True)
    assert [part.split()[-1] for part in normal.split(",") if "TRUE" in part] == [strategy]
    refresh = query(text, strategy=strategy, table_exists=True, full_refresh=True)
    assert [part.split()[-1] for part in refresh.split(",") if "TRUE" in part] == ["full_refresh"]


def test_names_are_recorded_in_order_and_once(rendered: Callable[..., Rendered]) -> None:
    found = rendered(
        "SELECT * FROM {{ ref('b') }} JOIN {{ ref('a.c') }} JOIN {{ ref('b') }} JOIN {{ landing_zone('z') }}"
        "{% if is_incremental() %} JOIN {{ ref('never') }}{% endif %}"
    )
    assert found.refs == ("b", "a.c")
    assert found.zones == ("z",)
    assert found.sql == "SELECT * FROM `ref b` JOIN `ref a.c` JOIN `ref b` JOIN `zone z`\n"


def test_each_name_is_resolved_once(rendered: Callable[..., Rendered]) -> None:
    given: list[str] = []

    def relation(name: str) -> str:
        given.append(name)
        return f"view_{len(given)}"

    found = rendered("SELECT * FROM {{ ref('a') }} JOIN {{ ref('a') }} JOIN {{ ref('b') }}", refs=relation)
    assert found.sql == "SELECT * FROM view_1 JOIN view_1 JOIN view_2\n"
    assert given == ["a", "b"]


def test_what_is_absent_on_the_first_run(problems: Callable[..., list[str]]) -> None:
    assert problems("SELECT 1\nWHERE a > {{ watermark_value }}") == [
        "2: watermark_value is not set; there is none before the first load; "
        "guard it with {% if is_incremental() %}"
    ]
    assert problems("SELECT * FROM {{ this }}") == [
        "1: this is not set; the table does not exist before the first load; guard it with {% if table_exists %}"
    ]


def test_it_can_be_asked_whether_they_are_there(query: Callable[..., str]) -> None:
    text = "SELECT {{ watermark_value is defined }}, {{ table_exists }}, {{ this is defined }}"
    assert query(text) == "SELECT FALSE, FALSE, FALSE"
    assert query(text, table_exists=True, watermark=LATER) == "SELECT TRUE, TRUE, TRUE"


@pytest.mark.parametrize("end", [";", " ;  ", ";;\n;", "; -- done\n", "\n-- done"])
def test_what_follows_the_query_does_no_harm(query: Callable[..., str], end: str) -> None:
    assert query(f"SELECT 1{end}").removesuffix("-- done").strip() == "SELECT 1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT {{ ref('a') }", "1: unexpected '}'"),
        ("\n{% if is_scd2() %}\nSELECT 1", "2: unexpected end of template; each {% if %} needs its {% endif %}, each {% for %} its {% endfor %}"),
        ("SELECT 1\n{% endif %}", "2: {% endif %} has no opening tag"),
        ("SELECT 1 {% iff x %}", "1: {% iff %} is not allowed in templates; did you mean if?"),
        ("SELECT {{ is_incrementel() }}", "1: there is no is_incrementel in templates; did you mean is_incremental?"),
        ("{% set total = 1 %}\nSELECT {{ totl }}", "2: there is no totl in templates; did you mean total?"),
        ("SELECT {{ 'a' | identifer }}", "1: there is no filter identifer in templates; did you mean identifier?"),
        ("SELECT {{ 'a' is nonee }}", "1: there is no test nonee in templates; did you mean none?"),
        ("SELECT {{ var('countri') }}", "1: there is no variable countri; did you mean country?"),
        ("SELECT {{ var('x') }}", "1: there is no variable x; set it under vars, or write var('x', default)"),
        ("SELECT {{ var(1) }}", "1: var takes a name in quotes and an optional default; write var('name', default)"),
        ("SELECT {{ var() }}", "1: var takes a name in quotes and an optional default; write var('name', default)"),
        ("SELECT {{ is_scd2('x') }}", "1: is_scd2 takes no arguments; write is_scd2()"),
        ("SELECT {{ range }}", "1: a function without ( ) cannot be printed into a query; print a string, a number, a date or a list"),
        ("SELECT\n{{ var('country') > 3 }}", "2: cannot be evaluated: '>' not supported between instances of 'str' and 'int'"),
        ("SELECT {{ 1 / 0 }}", "1: cannot be evaluated: division by zero"),
        ("SELECT {{ ref(a='b') }}", "1: cannot be evaluated: ref() got an unexpected keyword argument 'a'"),
        ("", "1: contains no query; write a SELECT"),
        ("-- nothing\n{# yet #}", "1: contains no query; write a SELECT"),
        ("SELECT 1;\n\nSELECT 2", "3: a second statement begins here; one pipeline makes one table: move the others to pipelines of their own"),
        ("\nDROP TABLE x", "2: is not a query: it is DROP; write a SELECT"),
        ("INSERT INTO x SELECT 1", "1: is not a query: it is INSERT; write a SELECT"),
        ("WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a", "1: is not a query: it is INSERT; write a SELECT"),
        ("MERGE INTO x USING y ON a = b WHEN MATCHED THEN DELETE", "1: is not a query: it is MERGE; write a SELECT"),
        ("EXPLAIN SELECT 1", "1: is not a query: it is EXPLAIN; write a SELECT"),
        ("SET a = 1", "1: is not a query: it is SET; write a SELECT"),
        ("1 + 1", "1: is not a query: it is the expression 1 + 1; write a SELECT"),
        ("SELECT 1,\n 'abc", "2: a quote or comment is not closed"),
        ("SELECT map('a')", "cannot be read as SQL (IndexError)"),
        ("SELECT", "1: SELECT without columns; name them, or write *"),
        ("SELECT a b c", "1: SQL: near 'c': not expected here"),
        ("SELECT 1\n\x07", "2: contains the control character '\\x07'; remove it"),
    ],
)  # fmt: skip
def test_mistakes(problems: Callable[..., list[str]], text: str, expected: str) -> None:
    assert problems(text, variables={"country": "de"}) == [expected]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("SELECT 1,\n\n", 3),
        ("{# one\ntwo\nthree #}\nSELECT 1,\n", 5),
        ("{% if is_scd2() %}\nmany\nlines\n{% endif %}\nSELECT 1,\n", 6),
        ("{%- if not is_scd2() -%}\n\n\nSELECT\n{%- endif %}\n1,\n", 7),
        ("SELECT {% for i in range(50) %}\n{{ i }},\n{% endfor %}\n", 4),
        ("SELECT {{\n\n var('long')\n\n }},\n", 6),
        ("{% raw %}\nSELECT '{{ x }}',\n{% endraw %}\n", 4),
        ("{% set a = 1 -%}\n{% set b = 2 %}\nSELECT {{ a }}, {{ b }},\n", 4),
        ("SELECT 1, -- {{ var('long') }}\n", 2),
    ],
)
def test_a_mistake_in_the_query_is_in_a_line_of_the_template(
    problems: Callable[..., list[str]], before: str, line: int, ends: str
) -> None:
    text = (before + "  a b c\nFROM {{ ref('x') }}\n").replace("\n", ends)
    assert problems(text, variables={"long": "a\nb\nc"}) == [f"{line}: SQL: near 'c': not expected here"]


def test_places_of_the_query_map_to_lines_of_the_template(rendered: Callable[..., Rendered]) -> None:
    found = rendered("SELECT\n{% for i in [1, 2] %}\n  {{ i }},\n{% endfor %}\n  3\n")
    lines = found.sql.split("\n")
    assert [found.template_line(number) for number, text in enumerate(lines, 1) if text.strip()] == [
        1,
        3,
        3,
        5,
    ]
    assert found.template_line(0) == 1
    assert found.template_line(99, 99) >= 5


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("-- @vars.a: ${A}\nSELECT 1 -- ${env:HOME}", "       SELECT 1"),
        ("/* one\n /* two */ ' */ SELECT 1", "SELECT 1"),
        ("SELECT '-- no', \"/* no */\", `--no`, 'it\\'s -- no' -- it's one", "SELECT '-- no', \"/* no */\", `--no`, 'it\\'s -- no'"),
        ("SELECT r'\\', R\"\\\" -- '", "SELECT r'\\', R\"\\\""),
        ("SELECT /*+ BROADCAST(a) */ 1", "SELECT /*+ BROADCAST(a) */ 1"),
        ("SELECT 1 -- goes on \\\n, 2", "SELECT 1\n, 2"),
    ],
)  # fmt: skip
def test_comments_are_taken_out(query: Callable[..., str], text: str, sql: str) -> None:
    lines = [line.strip() for line in query(text).split("\n") if line.strip()]
    assert lines == [line.strip() for line in sql.split("\n")]


def test_an_error_of_the_one_who_gives_relations_stays_what_it_is(rendered: Callable[..., Rendered]) -> None:
    def fail(name: str) -> str:
        raise SourceError(f"{name} has no table yet")

    with pytest.raises(SourceError, match="a has no table yet"):
        rendered("SELECT * FROM {{ ref('a') }}", refs=fail)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT {{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "SELECT {{ " + "-" * 5000 + "1 }}",
        "SELECT {{ " + "[" * 5000 + "]" * 5000 + " }}",
        "{% for i in [1] %}" * 40 + "SELECT 1" + "{% endfor %}" * 40,
        "{% if true %}" * 2000 + "SELECT 1" + "{% endif %}" * 2000,
    ],
)
def test_deep_nesting_is_told(problems: Callable[..., list[str]], text: str) -> None:
    (line,) = problems(text)
    assert "nested too deeply" in line


@pytest.mark.timeout(20)
def test_a_long_template(query: Callable[..., str]) -> None:
    assert query("SELECT 1 -- " + "x" * 1_000_000) == "SELECT 1"
    assert query("SELECT '" + "x" * 1_000_000 + "'") == "SELECT '" + "x" * 1_000_000 + "'"
    assert query("SELECT 1" + " + {{ 1 }}" * 5000).count("+") == 5000
