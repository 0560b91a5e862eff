"""Which pipelines and which destination of a project are meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_folders import Pipeline
from tallymark.destinations import registry
from tallymark.destinations.contract import Destination, TableLocator
from tallymark.destinations.declaration import DestinationOptions, Resolve
from tallymark.errors import ConfigError
from tallymark.flow.inspect.graph import build_graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def select_pipelines(project: LoadedProject, wanted: Sequence[str]) -> list[Pipeline]:
    """By name or glob such as `silver.*`; all when none is named. `+name` adds what it reads, directly or
    not, and `name+` all that read it; then the order is the one in which they can run."""
    chosen: dict[str, Pipeline] = {}
    with_others = [pattern for pattern in wanted if pattern != pattern.strip("+")]
    graph = build_graph(project) if with_others else None
    for pattern in wanted or ["*"]:
        matching = _matching(project, pattern) if wanted else dict(project.pipelines)
        if graph is not None:
            before = graph.upstream(matching) if pattern.startswith("+") else set()
            after = graph.downstream(matching) if pattern.endswith("+") else set()
            matching |= {name: project.pipelines[name] for name in before | after}
        chosen |= matching
    if graph is None:
        return list(chosen.values())
    return [chosen[name] for level in graph.levels() for name in level if name in chosen]


def _matching(project: LoadedProject, pattern: str) -> dict[str, Pipeline]:
    name = pattern.removeprefix("+").removesuffix("+")
    matching = {n: p for n, p in project.pipelines.items() if fnmatchcase(n, name)}
    if not matching:
        close = get_close_matches(name, project.pipelines, n=1)
        known = ", ".join(project.pipelines) or "none yet"
        raise ConfigError(
            f"there is no pipeline {name}",
            hint=f"did you mean {close[0]}?" if close else f"the project has: {known}",
        )
    return matching


@dataclass(frozen=True)
class NamedDestination:
    """A destination of a project, not open yet: each load opens it on a Spark session of its own."""

    name: str
    config: DestinationOptions
    resolve: Resolve

    def open(self, spark: Callable[[], SparkSession]) -> Destination:
        return registry.open_destination(self.config, spark, self.resolve)

    def locator(self) -> TableLocator | None:
        return registry.locate_tables(self.config, self.resolve)


def named_destination(project: LoadedProject, name: str | None) -> NamedDestination:
    chosen = name or project.config.defaults.destination
    known = project.config.destinations
    if chosen not in known:
        close = get_close_matches(chosen, known, n=1)
        raise ConfigError(
            f"there is no destination {chosen}",
            hint=f"did you mean {close[0]}?" if close else f"the project has: {', '.join(known)}",
        )
    return NamedDestination(chosen, known[chosen], project.resolve)
