"""What `validate` finds in the files of a project, and `doctor` in what the project runs on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tallymark.config.load_project import LoadedProject, find_project, load_project
from tallymark.config.pipeline_folders import Pipeline
from tallymark.destinations import registry
from tallymark.destinations.contract import Destination
from tallymark.errors import ConfigError, TallymarkError
from tallymark.flow.inspect.graph import build_graph
from tallymark.flow.inspect.lineage import query_errors
from tallymark.flow.quality import refuse_wrong_tests
from tallymark.flow.transform.views import refuse_wrong_views
from tallymark.ledger import open_ledger
from tallymark.model.graph import Graph
from tallymark.model.report import Finding
from tallymark.spark import Sessions, find_java
from tallymark.spark.launch_settings import is_connect


def validate(folder: Path) -> list[Finding]:
    """Everything that can be checked without Spark and without data."""
    try:
        project = load_project(find_project(folder))
        checked_graph(project)
    except ConfigError as error:
        return _wrong(error)
    if wrong := [finding for error in query_errors(project) for finding in _wrong(error)]:
        return wrong
    return (
        [Finding("tallymark.yaml", True, f"project {project.name}"), *_cautions(project)]
        + [Finding(pipeline.name, True, _in_words(pipeline)) for pipeline in project.pipelines.values()]
        + [Finding(test.file, True, f"{test.severity} of {test.pipeline}") for test in project.quality_tests]
    )


def checked_graph(project: LoadedProject) -> Graph:
    """Raises ConfigError for what is wrong between the files of a project, such as a ref to no pipeline."""
    graph = build_graph(project)
    refuse_wrong_tests(project)
    refuse_wrong_views(project)
    return graph


def _cautions(project: LoadedProject) -> Iterator[Finding]:
    for name, options in project.config.destinations.items():
        for caution in registry.cautions(options, project.resolve):
            yield Finding(f"Destination {name}", True, caution.text, caution.fix)


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


def diagnose(project: LoadedProject, sessions: Sessions) -> Iterator[Finding]:
    """`doctor`: each part is tried for real, and a fault in one hides no other."""
    yield Finding("Python", True, sys.version.split()[0])
    master = project.config.spark.master
    if is_connect(master):
        yield Finding("Java", True, "not needed: Spark Connect")
    else:
        yield _tried("Java", lambda: _java(project.root))
    spark = _tried("Spark", lambda: _spark(sessions, master))
    yield spark
    yield _tried("Ledger", lambda: _ledger(project))
    yield from _cautions(project)
    for name, config in project.config.destinations.items():
        if not spark.ok:
            yield Finding(f"Destination {name}", False, "not tried", "Spark must start first")
            continue
        destination = registry.open_destination(config, sessions.isolated, project.resolve)
        yield _tried(f"Destination {name}", partial(_destination, destination))


def _tried(subject: str, work: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, True, work())
    except TallymarkError as error:
        return Finding(subject, False, error.message, error.hint)
    except Exception as error:
        return Finding(subject, False, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _java(root: Path) -> str:
    java = find_java(root / ".tallymark")
    return f"{java.version} ({java.origin})"


def _spark(sessions: Sessions, master: str) -> str:
    import pyspark

    session = sessions.isolated()
    session.sql("SELECT 1").collect()
    return f"{session.version} at {master.partition(';')[0]}, PySpark {pyspark.__version__}"


def _destination(destination: Destination) -> str:
    destination.check()
    return f"{destination.capabilities.name}, can be written"


def _ledger(project: LoadedProject) -> str:
    with open_ledger(project.ledger_url) as ledger:
        ledger.check()
        return f"{ledger.place}, can be written"
