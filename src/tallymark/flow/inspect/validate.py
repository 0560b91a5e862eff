"""Everything that can be said about a project without Spark and without its data."""

from __future__ import annotations

from pathlib import Path

from tallymark.config.load_project import LoadedProject, find_project, load_project
from tallymark.config.pipeline_folders import Pipeline
from tallymark.errors import ConfigError
from tallymark.flow.inspect.graph import build_graph
from tallymark.flow.inspect.lineage import query_errors
from tallymark.flow.quality import refuse_wrong_tests
from tallymark.flow.transform.views import refuse_wrong_views
from tallymark.model.graph import Graph
from tallymark.model.report import Finding


def examine(folder: Path) -> list[Finding]:
    try:
        project = load_project(find_project(folder))
        checked_graph(project)
    except ConfigError as error:
        return _wrong(error)
    if wrong := [finding for error in query_errors(project) for finding in _wrong(error)]:
        return wrong
    return (
        [Finding("tallymark.yaml", True, f"project {project.name}")]
        + [Finding(pipeline.name, True, _in_words(pipeline)) for pipeline in project.pipelines.values()]
        + [Finding(test.file, True, f"{test.severity} of {test.pipeline}") for test in project.quality_tests]
    )


def checked_graph(project: LoadedProject) -> Graph:
    """Raises ConfigError for what is wrong between the files of a project."""
    graph = build_graph(project)
    refuse_wrong_tests(project)
    refuse_wrong_views(project)
    return graph


def _wrong(error: ConfigError) -> list[Finding]:
    problems = error.facts.get("problems")
    if not isinstance(problems, list) or not problems:
        return [Finding("configuration", False, error.message, error.hint)]
    return [_problem_finding(problem) for problem in problems]


def _in_words(pipeline: Pipeline) -> str:
    if pipeline.is_view:
        return f"view {pipeline.table}"
    return f"{pipeline.settings.strategy} into {pipeline.table}"


def _problem_finding(problem: object) -> Finding:
    facts = problem if isinstance(problem, dict) else {"message": str(problem)}
    place = ":".join(str(facts[key]) for key in ("file", "line") if facts.get(key))
    key = f"{facts['key']}: " if facts.get("key") else ""
    return Finding(place, False, f"{key}{facts.get('message', '')}", str(facts.get("suggestion") or ""))
