"""What a transform reads, found in its text before anything runs.

A pipeline.sql names its inputs by `ref('…')` and `landing_zone('…')`. A pipeline.py defines
`def transform(ctx)`, or is a script that sets `result`; it names its inputs by `ctx.ref("…")` and
`ctx.landing_zone("…")`, in a script without the `ctx.`. Names are constants.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jinja2 import nodes

from tallymark.config.yaml_file import Problem, config_error
from tallymark.templates.context import InputHelper, Template, constant_name, template_error
from tallymark.templates.parsing import compiled, constant_value, parse

ENTRY = "transform"
RESULT = "result"
_WARNINGS = threading.Lock()  # filters of warnings are those of the process: one thread at a time


@dataclass(frozen=True)
class Reference:
    helper: InputHelper
    name: str
    line: int


@dataclass(frozen=True)
class References:
    """In the order of the file; a name that is used twice is listed twice."""

    refs: tuple[Reference, ...] = ()
    zones: tuple[Reference, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Reference]) -> References:
        inputs = sorted(found, key=lambda reference: reference.line)
        return cls(
            tuple(reference for reference in inputs if reference.helper is InputHelper.REF),
            tuple(reference for reference in inputs if reference.helper is InputHelper.LANDING_ZONE),
        )


def references(template: Template) -> References:
    """The inputs of every branch of a pipeline.sql, also of those that a load does not take. Raises
    ConfigError."""
    tree = parse(template)
    compiled(template)  # finds unknown filters
    found: list[Reference] = []
    problems: list[Problem] = []
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name not in tuple(InputHelper):
            continue
        helper = InputHelper(call.node.name)
        name, fault = constant_name(helper, [constant_value(node) for node in call.args], bool(_named(call)))
        if fault:
            problems.append(Problem(template.file, call.lineno, 0, "", *fault))
        else:
            found.append(Reference(helper, name, call.lineno))
    if problems:
        raise config_error(problems)
    return References.of(found)


def names_used(template: Template) -> dict[str, int]:
    """Every name that a branch of the template uses, with its first line. Raises ConfigError."""
    found: dict[str, int] = {}
    for name in parse(template).find_all(nodes.Name):
        if name.ctx == "load":
            found[name.name] = min(name.lineno, found.get(name.name, name.lineno))
    return found


def _named(call: nodes.Call) -> list[object]:
    return [*call.kwargs, *filter(None, [call.dyn_args, call.dyn_kwargs])]


def python_references(template: Template) -> References:
    """The inputs of a pipeline.py. Raises ConfigError with every problem that its text shows."""
    tree = _parsed(template)
    entry = _entry(tree)
    problems = list(_entry_problems(template, tree, entry))
    context = _context_name(entry)
    found: list[Reference] = []
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (helper := _named_helper(node.func, context)):
            arguments = [arg.value if isinstance(arg, ast.Constant) else None for arg in node.args]
            has_others = bool(node.keywords) or any(isinstance(arg, ast.Starred) for arg in node.args)
            name, fault = constant_name(helper, arguments, has_others)
            if fault:
                problems.append(_problem(template, node, *fault))
            else:
                found.append(Reference(helper, name, node.lineno))
        elif (
            isinstance(node, ast.expr) and id(node) not in called and (helper := _named_helper(node, context))
        ):
            problems.append(_problem(template, node, f"{helper} is not called", f'write {helper}("…")'))
    if problems:
        raise config_error(problems)
    return References.of(found)


def _parsed(template: Template) -> ast.Module:
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "\\d" in a string: shown when it runs
            return ast.parse(template.text, filename=template.file)
    except SyntaxError as error:
        message = f"Python: {error.msg}"
        raise config_error(
            [Problem(template.file, error.lineno or 0, error.offset or 0, "", message)]
        ) from None
    except (RecursionError, MemoryError):
        raise template_error(template.file, 0, "is nested too deeply") from None
    except ValueError as error:
        raise template_error(template.file, 0, f"is not Python: {error}") from None


def _entry(tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == ENTRY:
            return node
    return None


def _entry_problems(
    template: Template, tree: ast.Module, entry: ast.FunctionDef | ast.AsyncFunctionDef | None
) -> Iterator[Problem]:
    if entry is None:
        if not _sets_result(tree):
            message = f"defines no {ENTRY}(ctx) and sets no {RESULT}"
            hint = f"write `def {ENTRY}(ctx):` that returns a DataFrame"
            yield Problem(template.file, 0, 0, "", message, hint)
        return
    if isinstance(entry, ast.AsyncFunctionDef):
        yield _problem(template, entry, f"{ENTRY} cannot be async", f"write `def {ENTRY}(ctx):`")
    given = entry.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    if needed != 1 or any(default is None for default in given.kw_defaults):
        yield _problem(template, entry, f"{ENTRY} must take one argument", f"write `def {ENTRY}(ctx):`")


def _sets_result(tree: ast.Module) -> bool:
    statements = (
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )
    return any(
        isinstance(node, ast.Name) and node.id == RESULT and isinstance(node.ctx, ast.Store)
        for statement in statements
        for node in ast.walk(statement)
    )


def _context_name(entry: ast.FunctionDef | ast.AsyncFunctionDef | None) -> str | None:
    """None in a script, whose inputs have no `ctx.` before them."""
    if entry is None:
        return None
    names = [argument.arg for argument in (*entry.args.posonlyargs, *entry.args.args)]
    return names[0] if names else "ctx"


def _named_helper(node: ast.expr, context: str | None) -> InputHelper | None:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if context is not None:
            return InputHelper(attr) if name in (context, "ctx") and attr in tuple(InputHelper) else None
        case ast.Name(id=name, ctx=ast.Load()) if context is None:
            return InputHelper(name) if name in tuple(InputHelper) else None
        case _:
            return None


def _problem(template: Template, node: ast.stmt | ast.expr, message: str, suggestion: str) -> Problem:
    return Problem(template.file, node.lineno, node.col_offset + 1, "", message, suggestion)
