"""From a template's text to a checked tree, and to code.

1. parse              errors of syntax, in plain words
2. check the tree     statements, names and calls that templates may not use
3. limit              the steps of its loops, and the values that it joins
4. mark the lines     each piece of output is preceded by the line of the template that prints it
5. compile
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType

from jinja2 import TemplateSyntaxError, nodes

from tallymark.config.yaml_file import Problem, closest, config_error
from tallymark.errors import ConfigError
from tallymark.templates.context import NAMES, InputHelper, Template, template_error, unknown_name
from tallymark.templates.sandbox import FILTERS, TESTS, new_sandbox, refused_statement, with_limits

CODE_NAME = "<template>"  # of the compiled code, by which a traceback shows its lines
LINE_MARK = "\x00"  # not allowed in a template, so it is never part of the output
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TAGS = ["if", "elif", "else", "endif", "for", "endfor", "set", "with", "endwith"]
_TOO_DEEP = (RecursionError, MemoryError, SyntaxError)

SANDBOX = new_sandbox()
_Report = Callable[..., Problem]


def parse(template: Template) -> nodes.Template:
    """Raises ConfigError with every problem of the tree."""
    if found := _CONTROL.search(template.text):
        line = template.text.count("\n", 0, found.start()) + 1
        raise template_error(template.file, line, f"contains the control character {found[0]!r}", "remove it")
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
        with_limits(tree)
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
    return template_error(template.file, 0, "is nested too deeply", "split it into several pipelines")


def _problems(template: Template, tree: nodes.Template) -> Iterator[Problem]:
    def problem(node: nodes.Node, message: str, suggestion: str = "") -> Problem:
        return Problem(template.file, node.lineno or 0, 0, "", message, suggestion)

    called = {id(call.node) for call in tree.find_all(nodes.Call)}
    stored = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    for node in tree.find_all(nodes.Node):
        if (word := refused_statement(node)) is not None:
            hint = "templates have if, for, set x = … and with, and read no other file"
            yield problem(node, f"{{% {word} %}} is not allowed in templates", hint)
        elif isinstance(node, nodes.Name):
            yield from _problems_of_name(node, id(node) in called, stored, problem)
        elif isinstance(node, nodes.Getattr | nodes.Getitem):
            name = node.attr if isinstance(node, nodes.Getattr) else constant_value(node.arg)
            if isinstance(name, str) and name.startswith("_"):
                yield problem(node, f"templates cannot use {name}")


def _problems_of_name(
    node: nodes.Name, is_called: bool, stored: set[str], problem: _Report
) -> Iterator[Problem]:
    name = node.name
    if node.ctx != "load":
        if name in NAMES:
            yield problem(node, f"{name} is a reserved name", "choose another name")
    elif name in tuple(InputHelper):
        if not is_called:
            yield problem(node, f"{name} is not called", f"write {name}('…')")
    elif name not in NAMES and name not in stored and name != "loop":
        yield problem(node, *unknown_name(name, stored))


def constant_value(node: nodes.Node) -> object:
    """None if the node is not a constant."""
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
    return template_error(template.file, error.lineno, message, suggestion)


def _unknown_tag(word: str) -> tuple[str, str]:
    if word in _TAGS:
        return f"{{% {word} %}} has no opening tag", ""
    meant = closest(word, _TAGS)
    suggestion = f"did you mean {meant}?" if meant else "templates have if, for, set x = … and with"
    return f"{{% {word} %}} is not allowed in templates", suggestion
