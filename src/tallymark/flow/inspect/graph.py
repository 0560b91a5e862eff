"""The graph of a project, from what its transforms ask for. Everything wrong in it is told at once.

`landing_zone('orders')` is the folder `orders` below the project's `landing_zones`, whether or not a
pipeline loads its files too; a pipeline's table is read by `ref`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_file import SourceConfig
from tallymark.config.pipeline_folders import Pipeline
from tallymark.config.query_files import Language, Transform
from tallymark.config.yaml_file import Problem, closest, config_error, listed
from tallymark.errors import ConfigError
from tallymark.model.graph import Graph, PipelineKind
from tallymark.templates import Reference, References, Template, python_references, references

_GLOB = frozenset("*?[{\\")


def build_graph(project: LoadedProject) -> Graph:
    """Raises ConfigError: unknown names, pipelines that read themselves, circles, wrong templates."""
    problems: list[Problem] = []
    inputs = {name: _inputs(pipeline, problems) for name, pipeline in project.pipelines.items()}
    problems += [problem for found in inputs.values() for problem in _unknown(project, found)]
    reads = {
        name: tuple(dict.fromkeys(one.name for one in found.references.refs if one.name in project.pipelines))
        for name, found in inputs.items()
    }
    graph = Graph(
        reads={name: tuple(n for n in needs if n != name) for name, needs in reads.items()},
        kinds={name: kind_of(pipeline) for name, pipeline in project.pipelines.items()},
        zones={name: tuple(_zones(project, found)) for name, found in inputs.items()},
    )
    problems += [_in_a_circle(inputs[circle[0]], circle) for circle in graph.cycles()]
    if problems:
        raise config_error(problems)
    return graph


def kind_of(pipeline: Pipeline) -> PipelineKind:
    if pipeline.transform is None:
        return PipelineKind.FILES
    match pipeline.transform.language:
        case Language.SQL:
            return PipelineKind.SQL
        case Language.PYTHON:
            return PipelineKind.PYTHON
        case _:
            assert_never(pipeline.transform.language)


@dataclass(frozen=True)
class _Inputs:
    pipeline: Pipeline
    references: References = field(default_factory=References)


def _inputs(pipeline: Pipeline, problems: list[Problem]) -> _Inputs:
    if pipeline.transform is None:
        return _Inputs(pipeline)
    try:
        return _Inputs(pipeline, transform_references(pipeline.transform))
    except ConfigError as error:
        found = error.facts.get("problems")
        problems += [Problem(**facts) for facts in found] if isinstance(found, list) else []
        return _Inputs(pipeline)


def transform_references(transform: Transform) -> References:
    template = Template(transform.file, transform.text)
    match transform.language:
        case Language.SQL:
            return references(template)
        case Language.PYTHON:
            return python_references(template)
        case _:
            assert_never(transform.language)


def _unknown(project: LoadedProject, inputs: _Inputs) -> Iterator[Problem]:
    name = inputs.pipeline.name
    for asked in inputs.references.refs:
        if asked.name == name:
            hint = "use `this` for its own table, inside {% if table_exists %}"
            yield _problem(inputs, asked, f"{name} reads itself", hint)
        elif asked.name not in project.pipelines:
            hint = _meant(project, asked.name)
            yield _problem(inputs, asked, f"there is no pipeline {asked.name}", hint)
    for asked in inputs.references.zones:
        if "." in asked.name and asked.name in project.pipelines:
            message = f"{asked.name} is a pipeline, and a landing zone is a folder of files"
            yield _problem(inputs, asked, message, f"write ref('{asked.name}')")


def _meant(project: LoadedProject, name: str) -> str:
    makers = [one.name for one in project.pipelines.values() if one.table.casefold() == name.casefold()]
    if makers:
        return f"the table {name} is made by pipeline {makers[0]}: write ref('{makers[0]}')"
    meant = closest(name, project.pipelines)
    if meant is None:
        last = name.rpartition(".")[2].casefold()
        meant = next((one for one in project.pipelines if one.rpartition(".")[2].casefold() == last), None)
    names = list(project.pipelines)
    return f"did you mean {meant}?" if meant else f"the project has {listed(names, 'and')}"


def _in_a_circle(inputs: _Inputs, circle: tuple[str, ...]) -> Problem:
    following = circle[1]
    asked = next(one for one in inputs.references.refs if one.name == following)
    way = " → ".join([*circle, circle[0]])
    return _problem(
        inputs, asked, f"pipelines depend on each other in a cycle: {way}", "remove one of these refs"
    )


def _problem(inputs: _Inputs, asked: Reference, message: str, suggestion: str) -> Problem:
    transform = inputs.pipeline.transform
    file = transform.file if transform else ""
    return Problem(file, asked.line, 0, "", message, suggestion)


def _zones(project: LoadedProject, inputs: _Inputs) -> Iterator[str]:
    source = inputs.pipeline.config.source
    found = _zones_of_files(project, source) if source else [one.name for one in inputs.references.zones]
    yield from dict.fromkeys(found)


def _zones_of_files(project: LoadedProject, source: SourceConfig) -> Iterator[str]:
    """The folders below the landing zones that a pipeline's globs name outright."""
    top = project.resolve(project.config.landing_zones).rstrip("/") + "/"
    for glob in [source.files] if isinstance(source.files, str) else source.files:
        path = project.resolve(glob)
        if not path.startswith(top):
            continue
        folders = path.removeprefix(top).split("/")[:-1]
        fixed = next((at for at, part in enumerate(folders) if _GLOB & set(part)), len(folders))
        if fixed:
            yield "/".join(folders[:fixed])
