"""Which pipelines read which, and from which columns each column is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ALL_COLUMNS = "*"


class PipelineKind(StrEnum):
    FILES = "files"
    SQL = "sql"
    PYTHON = "python"


@dataclass(frozen=True)
class GraphNode:
    """A pipeline and what it reads. Level 1 reads no other pipeline; every other level reads earlier ones."""

    pipeline: str
    kind: PipelineKind
    level: int
    reads: tuple[str, ...] = ()  # pipelines
    landing_zones: tuple[str, ...] = ()
    read_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Every pipeline of a project is a key of `reads`."""

    reads: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, PipelineKind] = field(default_factory=dict)
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Pipelines of one level can run at the same time, after all earlier levels. Pipelines in a cycle and
        those that read them are left out."""
        done: set[str] = set()
        levels: list[tuple[str, ...]] = []
        waiting = {name: set(names) for name, names in self.reads.items()}
        while ready := sorted(name for name, needs in waiting.items() if needs <= done):
            levels.append(tuple(ready))
            done.update(ready)
            for name in ready:
                del waiting[name]
        return tuple(levels)

    def cycles(self) -> list[tuple[str, ...]]:
        """Pipelines that read each other. Each cycle is listed once and starts at its first name."""
        ordered = {name for level in self.levels() for name in level}
        left = {name: [n for n in self.reads[name] if n not in ordered] for name in self.reads}
        left = {name: needs for name, needs in left.items() if needs and name not in ordered}
        found: list[tuple[str, ...]] = []
        seen: set[str] = set()
        for start in sorted(left):
            path: list[str] = []
            name = start
            while name not in seen and name not in path:
                path.append(name)
                name = left[name][0]
            if name in path:
                cycle = path[path.index(name) :]
                first = cycle.index(min(cycle))
                found.append(tuple(cycle[first:] + cycle[:first]))
            seen.update(path)
        return found

    def upstream(self, names: Iterable[str]) -> set[str]:
        """The pipelines that these read, directly or indirectly, without themselves."""
        return _reached(names, self.reads)

    def downstream(self, names: Iterable[str]) -> set[str]:
        """The pipelines that read these, directly or indirectly, without themselves."""
        return _reached(names, self.read_by())

    def read_by(self) -> dict[str, tuple[str, ...]]:
        readers: dict[str, list[str]] = {name: [] for name in self.reads}
        for name, needs in self.reads.items():
            for needed in dict.fromkeys(needs):
                readers[needed].append(name)
        return {name: tuple(sorted(found)) for name, found in readers.items()}

    def nodes(self, chosen: Iterable[str] | None = None) -> tuple[GraphNode, ...]:
        """Sorted by level, then by name. `reads` and `read_by` also name pipelines that are not chosen."""
        wanted = set(self.reads if chosen is None else chosen)
        read_by = self.read_by()
        return tuple(
            GraphNode(
                name,
                self.kinds.get(name, PipelineKind.FILES),
                number,
                self.reads[name],
                self.zones.get(name, ()),
                read_by[name],
            )
            for number, level in enumerate(self.levels(), start=1)
            for name in level
            if name in wanted
        )


def _reached(names: Iterable[str], steps: Mapping[str, tuple[str, ...]]) -> set[str]:
    start = set(names)
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        for name in steps.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached - start


class InputKind(StrEnum):
    PIPELINE = "pipeline"
    LANDING_ZONE = "landing_zone"
    UNKNOWN = "unknown"  # one of several inputs whose columns are unknown


@dataclass(frozen=True)
class ColumnSource:
    kind: InputKind
    name: str  # of the pipeline or landing zone; empty if it is unknown
    column: str  # ALL_COLUMNS if only the table knows the names


@dataclass(frozen=True)
class ColumnLineage:
    column: str  # ALL_COLUMNS for a `SELECT *` of unknown columns
    sources: tuple[ColumnSource, ...] = ()  # empty for a constant, count(*) and the like


@dataclass(frozen=True)
class PipelineLineage:
    pipeline: str
    columns: tuple[ColumnLineage, ...] = ()
    unknown: str = ""  # why the columns are unknown
