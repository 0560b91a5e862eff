"""What a transform reads is found without running it, in every branch."""

from __future__ import annotations

import pytest

from tallymark.errors import ConfigError
from tallymark.templates import References, Template, python_references, references

CTX = "def transform(ctx):\n    "


def names(found: References) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    return [(one.name, one.line) for one in found.refs], [(one.name, one.line) for one in found.zones]


def problems(text: str, find: object = references) -> list[str]:
    assert callable(find)
    with pytest.raises(ConfigError) as caught:
        find(Template("f", text))
    return [line.removeprefix("f:").strip() for line in caught.value.message.splitlines()]


def test_all_branches_of_a_query() -> None:
    text = (
        "SELECT * FROM {{ ref('silver.orders') }}\n"
        "{% if is_incremental() %}JOIN {{ ref('a') }}{% elif is_scd2() %}JOIN {{ ref('b') }}\n"
        "{% else %}{% for x in [] %}{{ ref('c') }}{% endfor %}{% endif %}\n"
        "{% set t = ref('d') if table_exists else ref('e') %}{{ [landing_zone('z/y')] | first }}"
        "-- {{ ref('in_a_comment') }}\n{# {{ ref('not_this') }} #}{% raw %}{{ ref('nor_this') }}{% endraw %}"
    )
    refs, zones = names(references(Template("f", text)))
    assert refs == [
        ("silver.orders", 1),
        ("a", 2),
        ("b", 2),
        ("c", 3),
        ("d", 4),
        ("e", 4),
        ("in_a_comment", 4),
    ]
    assert zones == [("z/y", 4)]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("ref(var('x'))", "ref takes a name in quotes, not an expression; the inputs of a pipeline must be known before it runs: put the if around the call"),
        ("ref('a' ~ 'b')", "ref takes a name in quotes, not an expression"),
        ("ref(5)", "ref takes a name in quotes, not an expression"),
        ("ref('a', 'b')", "ref takes one name; write ref('…')"),
        ("ref()", "ref takes one name"),
        ("ref(name='a')", "ref takes one name"),
        ("ref(*['a'])", "ref takes one name"),
        ("landing_zone(**{})", "landing_zone takes one name"),
        ("ref('')", "'' cannot be the name of a pipeline: use letters, digits and _ only"),
        ("ref('../x')", "'../x' cannot be the name of a pipeline"),
        ("ref('a.*')", "'a.*' cannot be the name of a pipeline"),
        ("ref('a b')", "'a b' cannot be the name of a pipeline"),
        ("ref('a`; DROP TABLE b')", "cannot be the name of a pipeline"),
        ("ref('_tallymark.markers')", "names that begin with _tallymark are Tallymark's own"),
        ("landing_zone('../x')", "'../x' cannot be the name of a landing zone: use letters, digits"),
        ("landing_zone('a/../b')", "cannot be the name of a landing zone"),
        ("landing_zone('a..b')", "cannot be the name of a landing zone"),
        ("landing_zone('/etc')", "cannot be the name of a landing zone"),
        ("landing_zone('a/')", "cannot be the name of a landing zone"),
        ("landing_zone('a//b')", "cannot be the name of a landing zone"),
        ("landing_zone('~')", "cannot be the name of a landing zone"),
        ("landing_zone('*')", "cannot be the name of a landing zone"),
        ("landing_zone('{a,b}')", "cannot be the name of a landing zone"),
        ("landing_zone('a?')", "cannot be the name of a landing zone"),
        ("landing_zone('[a]')", "cannot be the name of a landing zone"),
        ("landing_zone('_archive')", "cannot be the name of a landing zone"),
        ("landing_zone('a/_archive')", "cannot be the name of a landing zone"),
        ("landing_zone('.hidden')", "cannot be the name of a landing zone"),
        ("landing_zone('s3a://b/x')", "cannot be the name of a landing zone"),
        ("landing_zone('a\\\\b')", "cannot be the name of a landing zone"),
        ("landing_zone('größe')", "cannot be the name of a landing zone"),
    ],
)  # fmt: skip
def test_names_that_are_not_names(call: str, problem: str) -> None:
    (line,) = problems(f"SELECT\n{{{{ {call} }}}}")
    assert line.startswith("2: ")
    assert problem in line
    if "**" not in call:  # the same rules hold in Python
        (line,) = problems(
            f"{CTX}ctx.{call.replace('~', '+')}\n".replace("var(", "ctx.var("), python_references
        )
        assert line.startswith("2: ")
        assert problem in line


def test_all_problems_come_at_once() -> None:
    found = problems("{{ ref('a b') }}\n{{ nope }}{{ ref }}\n{% include 'x' %}")
    assert [line.partition(":")[0] for line in found] == ["2", "2", "3"]
    assert len(problems("{{ ref('a b') }}\n{{ ref('c d') }}")) == 2


def test_python_with_an_entry() -> None:
    text = (
        '"""Doc with ctx.ref("no")."""\n'
        "from x import ref\n"
        "def part(ctx):\n    return ctx.landing_zone('z')\n"
        "def transform(c):\n"
        "    orders = c.ref('silver.orders')\n"
        "    ref('somebody elses')\n"
        "    other.ref(5)\n"
        "    return orders.join(part(c), 'id')  # c.ref('no')\n"
    )
    assert names(python_references(Template("f", text))) == ([("silver.orders", 6)], [("z", 4)])


def test_a_python_script() -> None:
    text = "orders = ref('silver.orders')\nif True:\n    result = orders.join(landing_zone('z'), 'id')\n"
    assert names(python_references(Template("f", text))) == ([("silver.orders", 1)], [("z", 3)])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "",
            "defines no transform(ctx) and sets no result; write `def transform(ctx):` that returns a DataFrame",
        ),
        ("def f():\n    result = 1\n", "defines no transform(ctx) and sets no result"),
        ("async def transform(ctx): pass\n", "1: transform cannot be async"),
        ("def transform(): pass\n", "1: transform must take one argument"),
        ("def transform(a, b): pass\n", "1: transform must take one argument"),
        ("def transform(a, *, b): pass\n", "1: transform must take one argument"),
        (f"{CTX}get = ctx.ref\n", '2: ref is not called; write ref("…")'),
        ("result = map(ref, ['a'])\n", "1: ref is not called"),
        (f"{CTX}return ctx.ref(f'a{{1}}')\n", "2: ref takes a name in quotes"),
        ("def transform(ctx)\n    pass\n", "1: Python: expected ':'"),
        (f"{CTX}x = (1,\n", "2: Python: '(' was never closed"),
        ("result = '\x00'\n", "source code string cannot contain null bytes"),
        ("result = " + "(" * 5000 + "1" + ")" * 5000, "too many nested parentheses"),
        ("result = " + "-" * 100_000 + "1", "nested too deeply"),
    ],
)
def test_python_mistakes(text: str, problem: str) -> None:
    (line,) = problems(text, python_references)
    assert problem in line


def test_python_is_not_run(tmp_path) -> None:  # type: ignore[no-untyped-def]
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w')\nimport no_such_module\nresult = ref('a')\n"
    python_references(Template("f", text))
    assert not mark.exists()
