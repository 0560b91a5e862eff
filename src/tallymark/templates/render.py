"""From a template and a context to one query.

1. compile, once for each text                                       parsing.py
2. run it, with names bound to the context                           vocabulary.py
3. take the line marks out of the output, and keep them beside it
4. check that it is one query that reads only its declared inputs    query_check.py

Quality tests are templates that know less: their table, variables and the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateRuntimeError, UndefinedError, nodes
from jinja2.exceptions import SecurityError

from tallymark.config.yaml_file import Problem, config_error
from tallymark.errors import ConfigError, TallymarkError
from tallymark.model.settings import Strategy
from tallymark.templates.context import (
    NAMES,
    Context,
    Piece,
    Rendered,
    Template,
    TemplateFault,
    Value,
    Vocabulary,
    template_error,
    unknown_name,
)
from tallymark.templates.parsing import CODE_NAME, LINE_MARK, SANDBOX, compiled, parse
from tallymark.templates.query_check import checked

LONGEST_QUERY = 4 * 1024 * 1024
QUALITY_NAMES = frozenset({"this", "var", "run_started_at"})
_HAS = "quality tests have this, var('…') and run_started_at"
_OWN_TABLE = "a quality test reads only its pipeline's table: write {{ this }}"

_MARK = re.compile(f"{LINE_MARK}(\\d+){LINE_MARK}")


def render(template: Template, context: Context) -> Rendered:
    """Raises ConfigError with the line of the template."""
    vocabulary = Vocabulary(context)
    program = JinjaTemplate.from_code(SANDBOX, compiled(template), {})
    parts: list[str] = []
    length = 0
    try:
        for part in program.generate(vocabulary.names()):
            parts.append(part)
            length += len(part)
            if length > LONGEST_QUERY:
                message = f"the query is longer than {LONGEST_QUERY // 1024**2} MiB"
                raise template_error(template.file, _last_line(parts), message)
    except TallymarkError:
        raise  # by what the template called: it has its own message
    except Exception as error:
        raise _as_config_error(template, error) from None
    sql, pieces = _without_marks("".join(parts))
    rendered = Rendered(sql, tuple(vocabulary.refs), tuple(vocabulary.zones), pieces)
    return checked(template, rendered, vocabulary.relations())


def _last_line(parts: list[str]) -> int:
    marks = (_MARK.findall(part) for part in reversed(parts))
    return next((int(found[-1]) for found in marks if found), 0)


def _without_marks(output: str) -> tuple[str, tuple[Piece, ...]]:
    first, *rest = _MARK.split(output)
    texts, pieces, offset = [first], [], len(first)
    for line, text in zip(rest[::2], rest[1::2], strict=True):
        pieces.append(Piece(offset, int(line)))
        texts.append(text)
        offset += len(text)
    return "".join(texts), tuple(pieces)


def _as_config_error(template: Template, error: Exception) -> ConfigError:
    line = _line_of(error.__traceback__)
    match error:
        case TemplateFault():
            return template_error(template.file, line, error.message, error.suggestion)
        case UndefinedError():
            return template_error(template.file, line, *_undefined(error))
        case SecurityError() | TemplateRuntimeError():
            return template_error(template.file, line, error.message or "is not allowed in templates")
        case RecursionError() | MemoryError():
            return template_error(template.file, line, "is nested too deeply")
        case _:
            # Python's own message, such as: '>' not supported between instances of 'str' and 'int'.
            words = str(error).replace(f"{Vocabulary.__name__}.", "")
            return template_error(template.file, line, f"cannot be evaluated: {words}")


def _undefined(error: UndefinedError) -> tuple[str, str]:
    message = error.message or ""
    if found := re.fullmatch(r"'(\w+)' is undefined", message):
        return unknown_name(found[1])
    return message, ""


def _line_of(trace: TracebackType | None) -> int:
    """The traceback has the template's lines: Jinja puts them there."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == CODE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def render_quality_test(
    template: Template, *, this: str, run_started_at: datetime, variables: Mapping[str, Value]
) -> Rendered:
    """`this` is the relation of the table. Raises ConfigError with file and line."""
    unknown = [
        Problem(template.file, node.lineno, 0, "", f"{node.name} is not allowed in quality tests", _HAS)
        for node in parse(template).find_all(nodes.Name)
        if node.ctx == "load" and node.name in NAMES - QUALITY_NAMES
    ]
    if unknown:
        raise config_error(unknown)
    context = Context(
        strategy=Strategy.FULL_REFRESH,
        run_started_at=run_started_at,
        refs=_no_inputs,
        zones=_no_inputs,
        this=this,
        table_exists=True,
        variables=variables,
    )
    try:
        return render(template, context)
    except ConfigError as error:
        raise _naming_this(error) from None


def _no_inputs(name: str) -> str:
    raise AssertionError(name)  # refused above


def _naming_this(error: ConfigError) -> ConfigError:
    """Replaces the suggestion to use `ref`, which quality tests do not have."""
    problems = error.facts.get("problems")
    if not isinstance(problems, list):
        return error
    changed = [
        {**facts, "suggestion": _OWN_TABLE} if "ref(" in facts["suggestion"] else facts for facts in problems
    ]
    return config_error(Problem(**facts) for facts in changed)
