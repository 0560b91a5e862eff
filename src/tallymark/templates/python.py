"""What a pipeline.py reads, found in its text: nothing of it is run.

It defines `def transform(ctx)`, or is a script that sets `result`. Inputs are named by `ctx.ref("…")` and
`ctx.landing_zone("…")`, in a script without the `ctx.`, with constant names.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from tallymark.config.problem import Problem, config_error
from tallymark.templates.context import Template
from tallymark.templates.faults import wrong
from tallymark.templates.names import Asked, constant_name
from tallymark.templates.references import Reference, References

ENTRY = "transform"
RESULT = "result"


def python_references(template: Template) -> References:
    """Raises ConfigError with every problem that can be seen in the text."""
    tree = _parsed(template)
    entry = _entry(tree)
    problems = list(_entry_problems(template, tree, entry))
    context = _context_name(entry)
    found: list[Reference] = []
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (asked := _asked(node.func, context)):
            arguments = [arg.value if isinstance(arg, ast.Constant) else None for arg in node.args]
            has_others = bool(node.keywords) or any(isinstance(arg, ast.Starred) for arg in node.args)
            name, fault = constant_name(asked, arguments, has_others)
            if fault:
                problems.append(_problem(template, node, *fault))
            else:
                found.append(Reference(asked, name, node.lineno))
        elif isinstance(node, ast.expr) and id(node) not in called and (asked := _asked(node, context)):
            problems.append(_problem(template, node, f"{asked} is not called", f'write {asked}("…")'))
    if problems:
        raise config_error(problems)
    return References.of(found)


def _parsed(template: Template) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "\\d" in a text: for whoever runs it
            return ast.parse(template.text, filename=template.file)
    except SyntaxError as error:
        message = f"Python: {error.msg}"
        raise config_error(
            [Problem(template.file, error.lineno or 0, error.offset or 0, "", message)]
        ) from None
    except (RecursionError, MemoryError):
        raise wrong(template.file, 0, "is nested too deeply") from None
    except ValueError as error:
        raise wrong(template.file, 0, f"is not Python: {error}") from None


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
        yield _problem(template, entry, f"{ENTRY} is called with one argument", f"write `def {ENTRY}(ctx):`")


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


def _asked(node: ast.expr, context: str | None) -> Asked | None:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if context is not None:
            return Asked(attr) if name in (context, "ctx") and attr in tuple(Asked) else None
        case ast.Name(id=name, ctx=ast.Load()) if context is None:
            return Asked(name) if name in tuple(Asked) else None
        case _:
            return None


def _problem(template: Template, node: ast.stmt | ast.expr, message: str, suggestion: str) -> Problem:
    return Problem(template.file, node.lineno, node.col_offset + 1, "", message, suggestion)
