"""What templates cannot reach: Python, files, the environment, programs, endless loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

OUT_OF_REACH = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ ''['__cla' ~ 'ss__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ ['a'] | map(attribute='format') | first }}",
    "{{ [] | sort(attribute='__class__') | sum(attribute='__class__') ~ '' }}{{ [1] | sum(attribute='real') }}",
    "{{ ref.__globals__ }}",
    "{{ ref('a').__class__.__mro__ }}",
    "{{ ref('a').text.__class__ }}",
    "{{ var.__self__.context }}",
    "{{ var['__self__'] }}",
    "{{ (var).__func__ }}",
    "{{ is_scd2.__closure__ }}",
    "{{ range.__self__ }}",
    "{{ run_started_at.__reduce__() }}",
    "{{ run_started_at.tzinfo }}",
    "{{ run_started_at.strftime('%Y') }}",
    "{{ 'a'.format(1) }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ 'a'.format_map({}) }}",
    "{{ ''.encode() }}",
    "{{ [].append(1) }}",
    "{{ {}.update(a=1) }}",
    "{{ {}.setdefault('a', 1) }}",
    "{{ var('n').real }}",
    "{{ self }}",
    "{{ self._TemplateReference__context }}",
    "{{ super() }}",
    "{{ namespace(a=1) }}",
    "{{ lipsum.__globals__['os'] }}",
    "{{ cycler }}",
    "{{ joiner() }}",
    "{{ dict(a=1) }}",
    "{{ config }}",
    "{{ env('HOME') }}",
    "{{ environ }}",
    "{{ __import__('os') }}",
    "{{ open('/etc/passwd') }}",
    "{{ 'x' | safe }}",
    "{{ 'x' | tojson }}",
    "{{ 'x' | pprint }}",
    "{{ 'x' | e }}",
    "{{ 'x' | format(1) }}",
    "{{ [1, 2] | random }}",
    "{{ 'a' | center(10) }}",
    "{% include '/etc/passwd' %}",
    "{% include ['a', 'b'] ignore missing %}",
    "{% import 'os' as os %}",
    "{% from 'os' import environ %}",
    "{% extends 'a' %}",
    "{% block a %}{% endblock %}",
    "{% macro m() %}{% endmacro %}",
    "{% call var('n') %}{% endcall %}",
    "{% filter upper %}a{% endfilter %}",
    "{% set x %}a{% endset %}",
    "{% autoescape true %}{% endautoescape %}",
    "{% set ref = var %}",
    "{% set f = ref %}{{ f('a') }}",
    "{% for ref in [1] %}{% endfor %}",
    "{% with var = 1 %}{% endwith %}",
]
TOO_MUCH = [
    "{% for i in range(10**12) %}{{ i }}{% endfor %}",
    "{% for i in range(10**30) %}{{ i }}{% endfor %}",
    "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
    "{{ range(10**9) | list }}",
    "{{ 'x' * 10**12 }}",
    "{{ 10**12 * 'x' }}",
    "{{ [1] * 10**12 }}",
    "{{ 10**10**10 }}",
    "{{ 10 ** (10 ** 7) > 1 }}",
    "{{ 10**38 * 10**38 * 10**38 }}",
    "{{ '%1000000000d' % 1 }}",
    "{% set r = range(300) %}{% for a in r %}{% for b in r %}{% for c in r %}{% for d in r %}{% endfor %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "{% set r = 'x' * 9999 %}{% for a in r %}{% for b in r if b != a %}{% endfor %}{% endfor %}",
    "{% set r = [1] * 9999 %}{% for a in r %}{{ loop.length }}{% for b in r %}{% endfor %}{% endfor %}",
    "{% set a = 'x' * 9999 %}" + "{% set a = a ~ a %}" * 40,
    "{% set a = 'x' * 9999 %}" + "{% set a = a + a %}" * 40,
    "{% set a = [1] * 9999 %}" + "{% set a = a + a %}" * 40,
    "{{ ['x' * 9999] * 9999 | join('y' * 9999) }}",
    "{{ (['x' * 9999] * 9999) | join }}",
    "{{ 'x' * 9999 | replace('x', 'y' * 9999) }}",
    "{{ ('x' * 9999) | replace('x', 'y' * 9999) }}",
    "{{ ([[1] * 9999] * 9999) | sum(start=[]) }}",
    "{% set r = [1, 1] %}{% for x in r recursive %}{% if loop.depth < 60 %}{{ loop(r) }}{% endif %}{% endfor %}",
]


@pytest.mark.parametrize("attempt", OUT_OF_REACH)
def test_out_of_reach(problems: Callable[..., list[str]], attempt: str) -> None:
    found = problems(f"SELECT 1\n{attempt}", variables={"n": 1})
    assert found
    assert all(line.startswith(("2: ", "{% autoescape %} is not")) for line in found)
    # What renders and is only no SQL was in reach.
    assert not any("SQL" in line or "Traceback" in line or " at 0x" in line for line in found)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("attempt", TOO_MUCH)
def test_too_much(problems: Callable[..., list[str]], attempt: str) -> None:
    (line,) = problems(f"SELECT 1\n{attempt}")
    assert line.startswith("2: ")
    assert "SQL:" not in line


def test_a_query_that_grows_and_grows(problems: Callable[..., list[str]]) -> None:
    text = "{% for i in range(90000) %}" + "x" * 60 + "{{ i }}{% endfor %}"
    assert problems(text) == ["1: the query is longer than 4 MiB"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM csv.`/etc/passwd`", "csv.`/etc/passwd` is not read by ref or landing_zone"),
        (
            "SELECT * FROM silver.orders o",
            "silver.orders is not read by ref or landing_zone; write {{ ref('silver.orders') }}",
        ),
        ("SELECT (SELECT max(a) FROM x)", "x is not read by ref or landing_zone"),
        (
            "WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT * FROM a",
            "b is not defined at this place",
        ),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", "a is not defined at this place"),
        ("SELECT * FROM (WITH b AS (SELECT 1) SELECT * FROM b) c JOIN b", "b is not defined at this place"),
        ("SELECT (SELECT max(x) FROM c), (WITH c AS (SELECT 1 AS x) SELECT * FROM c)", "c is not defined at"),
        ("WITH a AS (WITH n AS (SELECT 1) SELECT * FROM n) SELECT * FROM a, n", "n is not defined at"),
        ("WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", "b is not defined at"),
        ("WITH a AS (SELECT * FROM d.a) SELECT * FROM a", "d.a is not read by ref or landing_zone"),
        ("SELECT * FROM read_files('/etc')", "READ_FILES('/etc') is not read by ref or landing_zone"),
        ("SELECT * FROM IDENTIFIER('x')", "is not read by ref or landing_zone"),
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "reflect runs JVM code"),
        ("SELECT `java_method`('a', 'b')", "java_method runs JVM code"),
        ("SELECT system.builtin.TRY_REFLECT('a', 'b')", "TRY_REFLECT runs JVM code"),
        ("SELECT TRANSFORM(a) USING 'cat' AS (b) FROM {{ ref('x') }}", "TRANSFORM … USING runs a program"),
        ("SELECT '${env:HOME}'", "${…} is replaced only in YAML files"),
        ("SELECT ${spark.app.name}", "${…} is replaced only in YAML files"),
        ("SELECT /*+ ${x} */ 1", "${…} is replaced only in YAML files"),
    ],
)
def test_the_query_reads_only_what_it_asked_for(
    problems: Callable[..., list[str]], sql: str, expected: str
) -> None:
    (line,) = problems(f"-- a line\n{sql}")
    assert line.startswith("2: ")
    assert expected in line


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT 1 AS a), y AS (SELECT * FROM X) SELECT * FROM y JOIN x USING (a)",
        "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM A WHERE x < 3) SELECT * FROM a",
        "WITH a AS (SELECT 1 AS x), b AS (WITH a AS (SELECT * FROM a) SELECT * FROM a) SELECT * FROM a, b",
        "WITH a AS (SELECT 1 AS x) SELECT * FROM a WHERE EXISTS (WITH d AS (SELECT * FROM a) SELECT * FROM a, d)",
        "WITH a AS (SELECT 1 AS x) (SELECT * FROM a UNION SELECT * FROM a)",
        "SELECT * FROM {{ ref('a.b') }} AS t JOIN {{ landing_zone('orders/eu') }} z ON t.a = z.a",
        "SELECT * FROM range(10) JOIN explode(array(1, 2)) JOIN VALUES (1) AS v(a)",
        "SELECT * FROM {{ ref('a') }} LATERAL VIEW explode(b) c AS d",
        "SELECT a FROM {{ ref('a') }} UNION ALL (SELECT 2)",
        "VALUES (1, 2), (3, 4)",
        "FROM {{ ref('a') }} SELECT b",
        "SELECT /*+ BROADCAST(x) */ * FROM {{ ref('a') }} x WHERE b RLIKE 'c' QUALIFY rank() OVER (ORDER BY b) = 1",
    ],
)
def test_queries_that_pass(query: Callable[..., str], sql: str) -> None:
    assert query(sql)
