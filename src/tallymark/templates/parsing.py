"""From a template's text to a tree that was looked through, and to code.

1. parse                         Jinja's own mistakes, in plain words
2. look through the tree         statements, names and calls that templates may not use
3. note the lines                each piece of output is preceded by the line that it came from
4. compile
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType

from jinja2 import TemplateSyntaxError, nodes

from tallymark.config.problem import Problem, closest, config_error
from tallymark.errors import ConfigError
from tallymark.templates.context import Template
from tallymark.templates.faults import wrong
from tallymark.templates.names import Asked
from tallymark.templates.sandbox import FILTERS, TESTS, new_sandbox, refused_statement
from tallymark.templates.vocabulary import NAMES, unknown_name

CODE_NAME = "<template>"  # of the compiled code: how its lines are known in a traceback
LINE_MARK = "\x00"  # cannot be in a template, so it cannot be mistaken
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TOO_DEEP = (RecursionError, MemoryError, SyntaxError)

SANDBOX = new_sandbox()
_Report = Callable[..., Problem]


def parse(template: Template) -> nodes.Template:
    """Raises ConfigError with everything that is wrong in the tree."""
    if found := _CONTROL.search(template.text):
        line = template.text.count("\n", 0, found.start()) + 1
        raise wrong(template.file, line, f"holds the control character {found[0]!r}", "remove it")
    try:
        tree = SANDBOX.parse(template.text, filename=CODE_NAME)
        problems = list(_problems(template, tree))
    except TemplateSyntaxError as error:
        raise _syntax(template, error) from None
    except _TOO_DEEP:
        raise _too_deep(template) from None
    if problems:
        raise config_error(problems)
    return tree


@lru_cache(maxsize=256)
def compiled(template: Template) -> CodeType:
    tree = parse(template)
    try:
        for output in list(tree.find_all(nodes.Output)):
            output.nodes = [part for node in output.nodes for part in (_mark(node.lineno), node)]
        code = SANDBOX.compile(tree, name=None, filename=CODE_NAME)
    except TemplateSyntaxError as error:
        raise _syntax(template, error) from None
    except _TOO_DEEP:
        raise _too_deep(template) from None
    return code


def _mark(line: int) -> nodes.TemplateData:
    return nodes.TemplateData(f"{LINE_MARK}{line}{LINE_MARK}", lineno=line)


def _too_deep(template: Template) -> ConfigError:
    return wrong(template.file, 0, "is nested too deeply", "divide it into several pipelines")


def _problems(template: Template, tree: nodes.Template) -> Iterator[Problem]:
    def problem(node: nodes.Node, message: str, suggestion: str = "") -> Problem:
        return Problem(template.file, node.lineno or 0, 0, "", message, suggestion)

    called = {id(call.node) for call in tree.find_all(nodes.Call)}
    stored = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    for node in tree.find_all(nodes.Node):
        if (word := refused_statement(node)) is not None:
            hint = "templates have if, for, set x = … and with; they read no other file"
            yield problem(node, f"{{% {word} %}} is not for templates", hint)
        elif isinstance(node, nodes.Name):
            yield from _problems_of_name(node, id(node) in called, stored, problem)
        elif isinstance(node, nodes.Getattr | nodes.Getitem):
            name = node.attr if isinstance(node, nodes.Getattr) else _constant(node.arg)
            if isinstance(name, str) and name.startswith("_"):
                yield problem(node, f"{name} is out of reach for templates")


def _problems_of_name(
    node: nodes.Name, is_called: bool, stored: set[str], problem: _Report
) -> Iterator[Problem]:
    name = node.name
    if node.ctx != "load":
        if name in NAMES:
            yield problem(node, f"{name} is a name of Tallymark's", "choose another name")
    elif name in tuple(Asked):
        if not is_called:
            yield problem(node, f"{name} is not called", f"write {name}('…')")
    elif name not in NAMES and name not in stored and name != "loop":
        yield problem(node, *unknown_name(name, stored))


def _constant(node: nodes.Node) -> object:
    return node.value if isinstance(node, nodes.Const) else None


def _syntax(template: Template, error: TemplateSyntaxError) -> ConfigError:
    message = (error.message or "is not a template").rstrip(".")
    suggestion = ""
    if found := re.match(r"No (filter|test) named '([^']+)'", message):
        kind, name = found[1], found[2]
        message = f"there is no {kind} {name} in templates"
        meant = closest(name, [*FILTERS, "identifier"] if kind == "filter" else TESTS)
        suggestion = f"did you mean {meant}?" if meant else ""
    elif found := re.match(r"Encountered unknown tag '([^']+)'", message):
        message, suggestion = _unknown_tag(found[1])
    elif "endif" in message or "endfor" in message or "Unexpected end of template" in message:
        message = message[0].lower() + message[1:].partition(". ")[0]
        suggestion = "each {% if %} needs its {% endif %}, each {% for %} its {% endfor %}"
    else:
        message = message[0].lower() + message[1:]
    return wrong(template.file, error.lineno, message, suggestion)


_TAGS = ["if", "elif", "else", "endif", "for", "endfor", "set", "with", "endwith"]


def _unknown_tag(word: str) -> tuple[str, str]:
    if word in _TAGS:
        return f"{{% {word} %}} without its beginning", ""
    meant = closest(word, _TAGS)
    suggestion = f"did you mean {meant}?" if meant else "templates have if, for, set x = … and with"
    return f"{{% {word} %}} is not for templates", suggestion
