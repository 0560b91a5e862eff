"""The Jinja environment of templates: a closed list of what they may use.

There is no loader, so a template reads no file, and there are no globals, so it runs no Python. Attributes,
statements and filters are those listed below. Every value that a template prints becomes a SQL literal
(`finalize`).

Nothing runs or grows without end: the steps of all loops are counted together (`with_limits`), and what makes
a longer value of shorter ones (`*`, `+`, `~`, join, replace, sum) has a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes, pass_context, pass_environment, pass_eval_context
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import do_join, do_replace, do_sum
from jinja2.nodes import EvalContext
from jinja2.runtime import Context as JinjaContext
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as JINJA_TESTS

from tallymark.templates.context import LOOPS, TemplateFault
from tallymark.templates.literals import identifier, literal

LONGEST_REPEAT = 10_000
LONGEST_VALUE = 1_000_000  # characters of a string, elements of a list
LARGEST_NUMBER = 10**38
_COUNTED, _JOINED = " counted", " joined"  # filters that no template can name

FILTERS = """
    abs capitalize count d default dictsort first float int items join last length list lower map max
    min reject replace reverse round select sort string sum title trim unique upper
    """.split()  # noqa: SIM905
TESTS = """
    boolean defined divisibleby eq equalto even false float ge gt in integer iterable le lower lt mapping ne
    none number odd sequence string true undefined upper == != > >= < <=
    """.split()  # noqa: SIM905

_TEXT_METHODS = frozenset({"upper", "lower", "strip", "startswith", "endswith", "split"})
_DATE_PARTS = frozenset({"year", "month", "day", "weekday", "isoweekday", "isoformat"})
_ATTRIBUTES: dict[type, frozenset[str]] = {
    str: _TEXT_METHODS,
    date: _DATE_PARTS,
    datetime: _DATE_PARTS | {"hour", "minute", "second", "date"},
    dict: frozenset({"items", "keys", "values", "get"}),
    LoopContext: frozenset(
        {
            "index",
            "index0",
            "revindex",
            "revindex0",
            "first",
            "last",
            "length",
            "depth",
            "previtem",
            "nextitem",
        }
    ),
}

_STATEMENTS = (nodes.Template, nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.With, nodes.Scope)
_REFUSED = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from … import",
    nodes.Extends: "extends",
    nodes.Block: "block",
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.FilterBlock: "filter",
    nodes.AssignBlock: "set without =",
    nodes.ScopedEvalContextModifier: "autoescape",
    nodes.EvalContextModifier: "autoescape",
}


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return any(attr in _ATTRIBUTES.get(kind, ()) for kind in type(obj).__mro__)

    def wrap_str_format(self, value: Any) -> None:
        """Jinja would allow its own `format`, with widths of any size."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise TemplateFault(f"templates cannot use {attribute} of {_words(obj)}")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _check_size(operator, left, right)
        return super().call_binop(context, operator, left, right)


def _check_size(operator: str, left: Any, right: Any) -> None:
    """`'x' * 10**12` would take all memory before its result can be checked."""
    if operator == "%" and isinstance(left, str):
        raise TemplateFault("% does not format strings in templates", "join strings with ~")
    if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        _refuse_longer(len(left) + len(right))
    if operator == "**" and not (abs(right) <= 128 and abs(left) <= 10**6):
        raise TemplateFault("the power is too large")
    if operator == "*":
        for one, other in ((left, right), (right, left)):
            if (
                isinstance(one, str | list | tuple)
                and isinstance(other, int)
                and len(one) * other > LONGEST_REPEAT
            ):
                raise TemplateFault(f"a repetition is longer than {LONGEST_REPEAT}")
            if isinstance(one, int) and abs(one) > LARGEST_NUMBER:
                raise TemplateFault("the number is too large")


def _refuse_longer(length: int) -> None:
    if length > LONGEST_VALUE:
        raise TemplateFault(f"a value is longer than {LONGEST_VALUE}", "build it in SQL")


def with_limits(tree: nodes.Template) -> None:
    """Wraps what the loops of the template run over, and what it joins by `~`."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = _filtered(loop.iter, _COUNTED)
    for joined in list(tree.find_all(nodes.Concat)):
        parts = nodes.List(joined.nodes, lineno=joined.lineno)
        joined.nodes = [_filtered(parts, _JOINED)]


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _counted(context: JinjaContext, items: Any) -> Any:
    return items if isinstance(items, Undefined) else context[LOOPS].over(items)


def _joined(parts: list[Any]) -> str:
    texts = [str(part) for part in parts]
    _refuse_longer(sum(map(len, texts)))
    return "".join(texts)


@pass_eval_context
def _join(context: EvalContext, value: Any, d: str = "", attribute: Any = None) -> Any:
    items = list(value)
    _refuse_longer(sum(len(item) if isinstance(item, str) else 1 for item in items) + len(items) * len(d))
    return do_join(context, items, d, attribute)


@pass_eval_context
def _replace(context: EvalContext, s: Any, old: str, new: str, count: int | None = None) -> Any:
    text, times = str(s), str(s).count(str(old))
    _refuse_longer(len(text) + len(str(new)) * (times if count is None else min(times, count)))
    return do_replace(context, s, old, new, count)


@pass_environment
def _sum(environment: Sandbox, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float | Decimal):
        raise TemplateFault("sum adds numbers", "join lists with +")
    return do_sum(environment, iterable, attribute, start)


def _words(obj: object) -> str:
    match obj:
        case str():
            return "a string"
        case _ if callable(obj):
            return "a function"
        case _:
            return f"a value of type {type(obj).__name__}"


def _printed(value: object) -> str:
    if isinstance(value, Undefined):
        return str(value)  # raises, with the name
    return literal(value)


def new_sandbox() -> Sandbox:
    sandbox = Sandbox(undefined=StrictUndefined, finalize=_printed, autoescape=False, loader=None)
    filters: dict[str, Callable[..., Any]] = {name: JINJA_FILTERS[name] for name in FILTERS}
    limited: dict[str, Callable[..., Any]] = {"join": _join, "replace": _replace, "sum": _sum}
    sandbox.filters = filters | limited | {"identifier": identifier, _COUNTED: _counted, _JOINED: _joined}
    sandbox.tests = {name: JINJA_TESTS[name] for name in TESTS}
    sandbox.globals = {}
    return sandbox


def refused_statement(node: nodes.Node) -> str | None:
    """The keyword of a statement that templates may not use; None for others."""
    if isinstance(node, nodes.For) and node.recursive:
        return "for … recursive"
    if isinstance(node, nodes.Stmt | nodes.Template) and not isinstance(node, _STATEMENTS):
        return _REFUSED.get(type(node), type(node).__name__.lower())
    return None
