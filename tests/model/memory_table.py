"""A table in memory, with rows so simple that anybody can check them.

A file holds one row, `key number`. A commit is atomic, carries its marker, and is refused as databases refuse:
a used sequence, an applied content, and (where the table sees it) a table that moved since the plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from tallymark.destinations.contract import Commit, TableMarkers
from tallymark.errors import Fenced, TableMoved
from tallymark.model.receipt import Applied, Marker
from tallymark.model.table import Column

COLUMNS = (Column("key", "string"), Column("number", "bigint"))


@dataclass(frozen=True)
class Row:
    key: str
    number: int


@dataclass(frozen=True)
class MemoryCommit:
    marker: Marker
    rows: tuple[Row, ...]
    version: int
    committed_at: datetime
    ledger: int  # which of the ledgers its worker had


@dataclass
class MemoryTable:
    sees_moves: bool  # refuses a plan that was made for an earlier version
    refuses_late: bool = True  # the fence; only tests that show what it is for switch it off
    held: list[MemoryCommit] = field(default_factory=list)
    accepted: list[MemoryCommit] = field(
        default_factory=list
    )  # also what was undone; not what a backup forgot
    version: int = 0
    last_sequence: int = 0
    last_fence: int = 0

    @property
    def exists(self) -> bool:
        return self.version > 0

    @property
    def contents(self) -> list[str]:
        return [content for commit in self.held for content in commit.marker.content_hashes]

    @property
    def rows(self) -> list[Row]:
        return [row for commit in self.held for row in commit.rows]

    @property
    def values(self) -> dict[str, int]:
        return {row.key: row.number for row in self.rows}

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        found = {
            content: Applied(commit.marker, str(commit.version), commit.committed_at)
            for commit in self.held
            for content in commit.marker.content_hashes
            if content_hashes is None or content in content_hashes
        }
        held = max((commit.marker.sequence for commit in self.held), default=0)
        return TableMarkers(found, self.last_sequence, self.last_fence, held)

    def commit(self, marker: Marker, rows: tuple[Row, ...], seen: int, now: datetime, ledger: int) -> Commit:
        if self.refuses_late:
            if marker.sequence <= self.last_sequence:
                raise Fenced(f"sequence {marker.sequence} was used: the table is at {self.last_sequence}")
            if set(marker.content_hashes) & set(self.contents):
                raise Fenced("a content of this batch was applied before")
        if self.sees_moves and seen != self.version:
            raise TableMoved(f"the plan was made for version {seen}, the table is at {self.version}")
        self.version += 1
        done = MemoryCommit(marker, rows, self.version, now, ledger)
        self.held.append(done)
        self.accepted.append(done)
        self.last_sequence = max(self.last_sequence, marker.sequence)
        self.last_fence = max(self.last_fence, marker.fence)
        return Commit(str(self.version), now, "memory")

    def foreign_commit(self) -> None:
        """Somebody else writes: no marker of ours."""
        self.version += 1

    def restore(self, kept: int) -> None:
        """As RESTORE of Delta: a new version with old rows. The numbers that were used stay used."""
        self.held = self.held[:kept]
        self.version += 1

    def restore_backup(self, kept: int) -> None:
        """As a database brought back from its dump: also the numbers are those of that time."""
        self.restore(kept)
        self.accepted = list(self.held)
        self.last_sequence = max((commit.marker.sequence for commit in self.held), default=0)
        self.last_fence = max((commit.marker.fence for commit in self.held), default=0)
