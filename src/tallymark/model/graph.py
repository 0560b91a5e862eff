"""Which pipeline reads which: an order to run them in, and what lies up- and downstream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PipelineKind(StrEnum):
    FILES = "files"
    SQL = "sql"
    PYTHON = "python"


@dataclass(frozen=True)
class GraphNode:
    """A pipeline with what it reads. Level 1 reads no other pipeline; each level needs those before it."""

    pipeline: str
    kind: PipelineKind
    level: int
    reads: tuple[str, ...] = ()  # pipelines
    landing_zones: tuple[str, ...] = ()
    read_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Every pipeline of a project is a key of `reads`. Without cycles, unless `cycles` says otherwise."""

    reads: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, PipelineKind] = field(default_factory=dict)
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """What can run side by side, after all that stands before it. What is in a cycle is left out."""
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
        """Pipelines that wait for each other, each circle once, beginning at its first name."""
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
                circle = path[path.index(name) :]
                first = circle.index(min(circle))
                found.append(tuple(circle[first:] + circle[:first]))
            seen.update(path)
        return found

    def upstream(self, names: Iterable[str]) -> set[str]:
        """All that these read, directly or not, without themselves."""
        return _reached(names, self.reads)

    def downstream(self, names: Iterable[str]) -> set[str]:
        """All that read these, directly or not, without themselves."""
        return _reached(names, self.read_by())

    def read_by(self) -> dict[str, tuple[str, ...]]:
        readers: dict[str, list[str]] = {name: [] for name in self.reads}
        for name, needs in self.reads.items():
            for needed in dict.fromkeys(needs):
                readers[needed].append(name)
        return {name: tuple(sorted(found)) for name, found in readers.items()}

    def nodes(self, chosen: Iterable[str] | None = None) -> tuple[GraphNode, ...]:
        """By level, then by name; what they read is told also where it is not chosen."""
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
