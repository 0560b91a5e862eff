"""A mutant: one line of the source, replaced by one that is wrong, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


class Stale(Exception):
    """The line is not in the module as the list has it."""


@dataclass(frozen=True)
class Mutant:
    name: str
    module: str  # below src/tallymark
    line: str  # as it stands there, without its indentation; exactly once
    replacement: str
    tests: tuple[str, ...]  # files or single tests, the fastest first
    why: str  # what goes wrong with it
    after: str = ""  # a line before it, where the line itself stands in the module several times
    spark: bool = False  # whether its tests need one
    equivalent: str = ""  # why no test can notice it

    def applied(self, source: str) -> str:
        """The module with the replacement. Raises Stale."""
        lines = source.splitlines()
        start = self._only(lines, self.after, 0) + 1 if self.after else 0
        at = self._first(lines, start) if self.after else self._only(lines, self.line, 0)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = "\n".join(indent + line for line in self.replacement.splitlines())
        return "\n".join(lines) + "\n"

    def _only(self, lines: list[str], wanted: str, start: int) -> int:
        found = [at for at, line in enumerate(lines[start:], start) if line.strip() == wanted]
        if len(found) != 1:
            raise Stale(f"{self.name}: {self.module} has {len(found)} times: {wanted}")
        return found[0]

    def _first(self, lines: list[str], start: int) -> int:
        for at, line in enumerate(lines[start:], start):
            if line.strip() == self.line:
                return at
        raise Stale(f"{self.name}: {self.module} has no such line after {self.after!r}: {self.line}")
