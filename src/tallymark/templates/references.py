"""What a transform reads, known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jinja2 import nodes

from tallymark.config.problem import Problem, config_error
from tallymark.templates.context import Template
from tallymark.templates.names import Asked, constant_name
from tallymark.templates.parsing import compiled, parse


@dataclass(frozen=True)
class Reference:
    asked: Asked
    name: str
    line: int


@dataclass(frozen=True)
class References:
    """In the order of the file; a name that is asked for twice is there twice."""

    refs: tuple[Reference, ...] = ()
    zones: tuple[Reference, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Reference]) -> References:
        inputs = sorted(found, key=lambda reference: reference.line)
        return cls(
            tuple(reference for reference in inputs if reference.asked is Asked.REF),
            tuple(reference for reference in inputs if reference.asked is Asked.LANDING_ZONE),
        )


def references(template: Template) -> References:
    """Of every branch, also of those that this load does not take. Raises ConfigError."""
    tree = parse(template)
    compiled(template)  # unknown filters are found only here
    found: list[Reference] = []
    problems: list[Problem] = []
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name not in tuple(Asked):
            continue
        asked = Asked(call.node.name)
        name, fault = constant_name(asked, [_constant(node) for node in call.args], bool(_named(call)))
        if fault:
            problems.append(Problem(template.file, call.lineno, 0, "", *fault))
        else:
            found.append(Reference(asked, name, call.lineno))
    if problems:
        raise config_error(problems)
    return References.of(found)


def names_used(template: Template) -> dict[str, int]:
    """Every name that some branch of the template uses, with its first line. Raises ConfigError."""
    found: dict[str, int] = {}
    for name in parse(template).find_all(nodes.Name):
        if name.ctx == "load":
            found[name.name] = min(name.lineno, found.get(name.name, name.lineno))
    return found


def _named(call: nodes.Call) -> list[object]:
    return [*call.kwargs, *filter(None, [call.dyn_args, call.dyn_kwargs])]


def _constant(node: nodes.Node) -> object:
    return node.value if isinstance(node, nodes.Const) else None
