"""Quality tests are templates that know less than a pipeline's: their table, variables and the time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from jinja2 import nodes

from tallymark.config.problem import Problem, config_error
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy
from tallymark.templates.context import Context, Rendered, Template, Value
from tallymark.templates.parsing import parse
from tallymark.templates.render import render
from tallymark.templates.vocabulary import NAMES

KNOWN = frozenset({"this", "var", "run_started_at"})
_HAS = "quality tests have this, var('…') and run_started_at"
_OWN_TABLE = "a quality test reads only its pipeline's table: write {{ this }}"


def render_quality_test(
    template: Template, *, this: str, run_started_at: datetime, variables: Mapping[str, Value]
) -> Rendered:
    """`this` is the relation that stands for the table. Raises ConfigError with file and line."""
    unknown = [
        Problem(template.file, node.lineno, 0, "", f"{node.name} is not for quality tests", _HAS)
        for node in parse(template).find_all(nodes.Name)
        if node.ctx == "load" and node.name in NAMES - KNOWN
    ]
    if unknown:
        raise config_error(unknown)
    context = Context(
        strategy=Strategy.FULL_REFRESH,
        run_started_at=run_started_at,
        refs=_nothing,
        zones=_nothing,
        this=this,
        table_exists=True,
        variables=variables,
    )
    try:
        return render(template, context)
    except ConfigError as error:
        raise _naming_this(error) from None


def _nothing(name: str) -> str:
    raise AssertionError(name)  # refused above


def _naming_this(error: ConfigError) -> ConfigError:
    """A query that reads another table is told to use `ref`, which quality tests do not have."""
    problems = error.facts.get("problems")
    if not isinstance(problems, list):
        return error
    told = [
        {**facts, "suggestion": _OWN_TABLE} if "ref(" in facts["suggestion"] else facts for facts in problems
    ]
    return config_error(Problem(**facts) for facts in told)
