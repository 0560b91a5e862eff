"""A destination in memory: the protocol part of the contract, and rows so simple that anybody can check them.

A file holds one row, `key number`. A commit is atomic, carries its marker, and is refused as real destinations
refuse: a used sequence, an applied content, and (where the table sees it) a table that moved since the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tallymark.destinations.contract import Commit, TableMarkers, rolled_back
from tallymark.errors import Fenced, TableMoved, UnreadableFile
from tallymark.flow.job import Job
from tallymark.model.batch import Batch
from tallymark.model.plan import Plan
from tallymark.model.receipt import Applied, Counts, Marker, Receipt
from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column, TableShape
from tallymark.strategies.build import build_plan

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


@dataclass(frozen=True)
class MemoryPrepared:
    table: MemoryTable
    rows: tuple[Row, ...]
    seen: int
    commit: Callable[[Marker], Commit]
    duplicates: None = None

    @property
    def counts(self) -> Counts:
        return Counts(inserted=len(self.rows), total=len(self.rows))

    @property
    def table_rows(self) -> int:
        return len(self.table.rows)


Gate = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True)
class MemoryDestination:
    """What one worker sees of the tables: every call passes its gate."""

    tables: dict[str, MemoryTable]
    clock: Callable[[], datetime]
    ledger: int
    gate: Gate
    table_properties: dict[str, str] = field(default_factory=dict)

    def table(self, name: str) -> MemoryTarget:
        return MemoryTarget(name, self)


@dataclass
class MemoryTarget:
    name: str
    seen_by: MemoryDestination
    claimed_at: int = 0  # the last sequence that `markers` has shown

    @property
    def key(self) -> str:
        return f"memory:{self.name}"

    @property
    def table(self) -> MemoryTable:
        return self.seen_by.tables[self.name]

    def shape(self) -> TableShape | None:
        found: TableShape | None = self.seen_by.gate("shape", lambda: _shape(self.table))
        return found

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        found: TableMarkers = self.seen_by.gate("markers", lambda: self.table.markers(content_hashes))
        self.claimed_at = found.held_sequence
        return found

    def was_rolled_back(self, last: Receipt) -> bool:
        found: bool = self.seen_by.gate(
            "was_rolled_back", lambda: self.table.markers(()).held_sequence < last.sequence
        )
        return found

    @contextmanager
    def prepare(
        self, plan: Plan, incoming: tuple[Row, ...], *, for_commit: bool = True
    ) -> Iterator[MemoryPrepared]:
        table = self.table
        seen = int(plan.current.version) if plan.current else 0

        def commit(marker: Marker) -> Commit:
            now = self.seen_by.clock()
            made: Commit = self.seen_by.gate("commit", lambda: at_once(marker, now))
            return made

        def at_once(marker: Marker, now: datetime) -> Commit:
            if table.markers(()).held_sequence < self.claimed_at:
                raise rolled_back(plan.table)
            return table.commit(marker, incoming, seen, now, self.seen_by.ledger)

        yield MemoryPrepared(table, incoming, seen, commit)

    def settle(self) -> None:
        self.seen_by.gate("settle", lambda: None)


def _shape(table: MemoryTable) -> TableShape | None:
    return TableShape(COLUMNS, str(table.version)) if table.exists else None


@contextmanager
def prepared_in_memory(job: Job, batch: Batch, *, for_commit: bool = True) -> Iterator[tuple[Any, Plan, Any]]:
    """In the place of `flow.load.prepared_batch`: the same steps without Spark."""
    current = job.target.shape()
    rows = tuple(_read(file.path) for file in batch.files_read)
    plan = _plan(job.task.table, job.task.settings, current is None)
    plan = replace(plan, current=current, as_of=batch.as_of)
    with job.target.prepare(plan, rows) as prepared:  # type: ignore[arg-type]
        yield SimpleNamespace(total=len(rows), rejected=0), plan, prepared


def _read(path: str) -> Row:
    try:
        key, number = Path(path).read_text().split()
    except OSError as error:
        raise UnreadableFile(path, str(error)) from error
    return Row(key, int(number))


@cache
def _plan(table: str, settings: MergeSettings, creates: bool) -> Plan:
    """Building one takes longer than all the rest of a load here."""
    current = None if creates else TableShape(COLUMNS, "1")
    return build_plan(table, settings, COLUMNS, current, as_of=datetime.min)
