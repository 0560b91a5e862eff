"""A template with a context becomes one query.

1. compile, once for each text                            parsing.py
2. run it, with names bound to the context                vocabulary.py
3. take out the notes of lines, keep them beside the text
4. check that it is one query that reads only what it asked for    query.py
"""

from __future__ import annotations

import re
from types import TracebackType

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateRuntimeError, UndefinedError
from jinja2.exceptions import SecurityError

from tallymark.errors import ConfigError, TallymarkError
from tallymark.templates.context import Context, Piece, Rendered, Template
from tallymark.templates.faults import Fault, wrong
from tallymark.templates.parsing import CODE_NAME, LINE_MARK, SANDBOX, compiled
from tallymark.templates.query import checked
from tallymark.templates.vocabulary import Vocabulary, unknown_name

LONGEST_QUERY = 4 * 1024 * 1024

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
                raise Fault(f"the query grows longer than {LONGEST_QUERY // 1024**2} MiB")
    except TallymarkError:
        raise  # of the callables: it says its own
    except Exception as error:
        raise _in_words(template, error) from None
    sql, pieces = _without_marks("".join(parts))
    rendered = Rendered(sql, tuple(vocabulary.refs), tuple(vocabulary.zones), pieces)
    return checked(template, rendered, vocabulary.relations())


def _without_marks(output: str) -> tuple[str, tuple[Piece, ...]]:
    first, *rest = _MARK.split(output)
    texts, pieces, offset = [first], [], len(first)
    for line, text in zip(rest[::2], rest[1::2], strict=True):
        pieces.append(Piece(offset, int(line)))
        texts.append(text)
        offset += len(text)
    return "".join(texts), tuple(pieces)


def _in_words(template: Template, error: Exception) -> ConfigError:
    line = _line_of(error.__traceback__)
    match error:
        case Fault():
            return wrong(template.file, line, error.message, error.suggestion)
        case UndefinedError():
            return wrong(template.file, line, *_undefined(error))
        case SecurityError() | TemplateRuntimeError():
            return wrong(template.file, line, error.message or "is not for templates")
        case RecursionError() | MemoryError():
            return wrong(template.file, line, "is nested too deeply")
        case _:
            # Python's own words, such as: '>' not supported between instances of 'str' and 'int'.
            words = str(error).replace(f"{Vocabulary.__name__}.", "")
            return wrong(template.file, line, f"cannot be computed: {words}")


def _undefined(error: UndefinedError) -> tuple[str, str]:
    message = error.message or ""
    if found := re.fullmatch(r"'(\w+)' is undefined", message):
        return unknown_name(found[1])
    return message, ""


def _line_of(trace: TracebackType | None) -> int:
    """Jinja has put the template's lines into the traceback."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == CODE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
