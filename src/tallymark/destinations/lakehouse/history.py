"""The commits of a table as far as loads are concerned, and which of them the table still holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tallymark.model.receipt import Marker

_NO_END = 2**62


@dataclass(frozen=True)
class HistoryEntry:
    version: int
    committed_at: datetime
    operation: str
    metrics: dict[str, str]
    marker: Marker | None  # None for a commit of another writer
    restored_to: int | None  # the version that a restore went back to
    read_version: int | None  # the version that the writer had seen


class TableHistory(Protocol):
    def after(self, version: int) -> list[HistoryEntry]:
        """Commits after `version` up to the last one seen, oldest first."""


@dataclass(frozen=True)
class HeldVersions:
    """The versions whose commits make up the table as it is now."""

    ranges: tuple[tuple[int, int], ...]  # first and last of each

    def __contains__(self, version: int) -> bool:
        return any(first <= version <= last for first, last in self.ranges)

    @classmethod
    def after_restores(cls, restores: Iterable[tuple[int, int]]) -> HeldVersions:
        """Given pairs of the version of a restore and the version that it went to. A restore can also bring
        back what an earlier one took."""
        ranges, last = [], _NO_END
        for restore, restored_to in sorted(set(restores), reverse=True):
            if restore <= last:
                ranges.append((restore, last))
                last = restored_to
        return cls((*ranges, (0, last)))


def aware(moment: datetime) -> datetime:
    """Spark returns timestamps in the local zone of this process, without saying so."""
    return moment.astimezone() if moment.tzinfo is None else moment
