"""The versions of one key: a walk along its timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

Content = dict[str, Any]


class Versions:
    """`versions` gives (start, end or None, content), in the order of their starts."""

    def __init__(self, tracked: Callable[[Content], Content]):
        self._tracked = tracked
        self._before: dict[Any, tuple[Any, Content]] = {}
        self._observed: dict[Any, Content] = {}
        self._ends: set[Any] = set()

    def held(self, start: Any, end: Any, content: Content) -> None:
        self._before[start] = (end, content)
        if end is not None:
            self._ends.add(end)

    def observe(self, at: Any, content: Content) -> None:
        base = [old for start, (_, old) in sorted(self._before.items()) if start <= at]
        self._observed[at] = {**(base[-1] if base else {}), **content}

    def close(self, at: Any) -> None:
        """Ends the open version, if it began before."""
        if any(end is None and start < at for start, (end, _) in self._before.items()):
            self._ends.add(at)

    @property
    def versions(self) -> list[tuple[Any, Any, Content]]:
        starts = {start: content for start, (_, content) in self._before.items()} | self._observed
        found: list[list[Any]] = []
        running, previous = False, None  # previous: the row last passed, and whether it is new
        for at in sorted({*starts, *self._ends}):
            if at not in starts:
                if running:
                    found[-1][1] = at
                running, previous = False, None
                continue
            content, new = starts[at], at in self._observed
            if previous is not None and (new or previous[1]) and self._same(previous[0], content):
                previous = (content, new)
                continue
            if running:
                found[-1][1] = at
            found.append([at, None, content])
            running, previous = True, (content, new)
        return [(start, end, content) for start, end, content in found]

    def counts(self) -> Counter[str]:
        after = {start: (end, content) for start, end, content in self.versions}
        counts: Counter[str] = Counter()
        for start, (end, content) in after.items():
            if start not in self._before:
                counts["inserted"] += 1
            elif not self._same(self._before[start][1], content):
                counts["updated"] += 1
            elif self._before[start][0] != end:
                counts["closed"] += 1
        counts["deleted"] = sum(start not in after for start in self._before)
        counts["unchanged"] = len(self._observed) - counts["inserted"] - counts["updated"]
        return counts

    def _same(self, left: Content, right: Content) -> bool:
        return self._tracked(left) == self._tracked(right)
