"""The destination of the model: the protocol part of the contract, over tables in memory (`memory_table`) and
over Delta's own files (`delta_files`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from model.delta_files import DeltaTarget, LoggedTable
from model.memory_quarantine import REPLAYED, Gate
from model.memory_table import COLUMNS, MemoryTable, Row
from tallymark.destinations.contract import Commit, TableMarkers, rolled_back
from tallymark.errors import CheckError, UnreadableFile
from tallymark.flow.bad_rows import judge
from tallymark.flow.job import Job
from tallymark.model.batch import Batch, QuarantinedRows
from tallymark.model.plan import Plan
from tallymark.model.receipt import Counts, Marker, Receipt
from tallymark.model.settings import MergeSettings
from tallymark.model.table import TableShape
from tallymark.strategies.build import build_plan


@dataclass(frozen=True)
class MemoryPrepared:
    table: MemoryTable
    rows: tuple[Row, ...]
    seen: int
    commit: Callable[[Marker], Commit]
    duplicates: None = None
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> Counts:
        return Counts(inserted=len(self.rows), total=len(self.rows))

    @property
    def table_rows(self) -> int:
        return len(self.table.rows)


@dataclass(frozen=True)
class MemoryDestination:
    """What one worker sees of the tables: every call passes its gate."""

    tables: dict[str, MemoryTable]
    clock: Callable[[], datetime]
    ledger: int
    gate: Gate
    table_properties: dict[str, str] = field(default_factory=dict)

    def table(self, name: str) -> MemoryTarget | DeltaTarget:
        table = self.tables[name]
        return DeltaTarget(name, table, self) if isinstance(table, LoggedTable) else MemoryTarget(name, self)


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
    rows, bad = _contents(job, batch)
    plan = _plan(job.task.table, job.task.settings, current is None)
    plan = replace(plan, current=current, as_of=batch.as_of)
    with job.target.prepare(plan, rows) as prepared:  # type: ignore[arg-type]
        yield SimpleNamespace(total=len(rows) + len(bad), rejected=len(bad), bad=bad), plan, prepared


def _contents(job: Job, batch: Batch) -> tuple[tuple[Row, ...], list[tuple[str, str]]]:
    """A replay takes the bad rows of a batch as one good one."""
    match batch.contents:
        case QuarantinedRows(batch_id=original):
            quarantine: Any = job.quarantine
            if not judge(job.ledger, batch.pipeline, quarantine.attempts(batch.pipeline)).of_batch(original):
                raise CheckError("nothing to be replayed")
            return (Row(REPLAYED, 0),), []
        case _:
            read = [(file.content_hash, *_read(file.path)) for file in batch.files_read]
            return tuple(row for _, row, _ in read), [(content, w) for content, _, bad in read for w in bad]


def _read(path: str) -> tuple[Row, list[str]]:
    try:
        key, number, *bad = Path(path).read_text().split()
    except OSError as error:
        raise UnreadableFile(path, str(error)) from error
    return Row(key, int(number)), bad


@cache
def _plan(table: str, settings: MergeSettings, creates: bool) -> Plan:
    """Building one takes longer than all the rest of a load here."""
    current = None if creates else TableShape(COLUMNS, "1")
    return build_plan(table, settings, COLUMNS, current, as_of=datetime.min)
