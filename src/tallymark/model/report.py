"""What a command tells whoever asked: the same values for the terminal, `--json` and the library."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from tallymark.model.gate import GateResult
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.table import is_provenance


class Outcome(StrEnum):
    LOADED = "loaded"  # at least one batch was committed
    NOTHING_NEW = "nothing_new"
    FAILED = "failed"
    BUSY = "busy"  # another worker holds the table's lease


@dataclass(frozen=True)
class Prepared:
    """The file of classes that `tallymark prepare` made."""

    archive: Path
    bytes: int


@dataclass(frozen=True)
class Failure:
    """An error as data: what `TallymarkError.as_dict` gives."""

    code: str
    message: str
    hint: str = ""
    retry_safe: bool = False
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Discovery:
    """What the source held: counts of files."""

    listed: int = 0
    new: int = 0
    duplicates: tuple[tuple[str, str], ...] = ()  # (path, path it repeats)
    waiting: tuple[tuple[str, str], ...] = ()  # (path, why it was left for the next run)


@dataclass(frozen=True)
class PipelineReport:
    pipeline: str
    table: str
    outcome: Outcome
    receipts: tuple[Receipt, ...] = ()
    discovery: Discovery = Discovery()
    recovered: tuple[Receipt, ...] = ()  # commits that an earlier worker made and did not record
    undone: tuple[str, ...] = ()  # batches that the table no longer holds: their files wait again
    still_open: tuple[str, ...] = ()  # batches that were not committed: the next run tries them first
    failures: tuple[Failure, ...] = ()
    held_back: tuple[str, ...] = ()  # files that wait behind a failed one, since order matters
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def counts(self) -> Counts:
        names = Counts().as_dict()
        return Counts(**{n: sum(getattr(r.counts, n) for r in self.receipts) for n in names})


@dataclass(frozen=True)
class RunReport:
    run_id: str
    project: str
    pipelines: tuple[PipelineReport, ...]
    started_at: datetime
    seconds: float

    @property
    def ok(self) -> bool:
        return all(p.outcome is not Outcome.FAILED for p in self.pipelines)


@dataclass(frozen=True)
class RowSample:
    label: str
    before: dict[str, object] | None
    after: dict[str, object] | None

    def cells(self, key: Collection[str] = ()) -> list[tuple[str, object, object, bool]]:
        """(column, before, after, whether they differ), without provenance. Of a row that is there before
        and after, only the key and what differs."""
        row = self.after if self.after is not None else self.before or {}
        before, keys = self.before or {}, {name.casefold() for name in key}
        both = self.before is not None and self.after is not None
        cells = [
            (name, before.get(name), value, both and before.get(name) != value)
            for name, value in row.items()
            if not is_provenance(name)
        ]
        changed = [cell for cell in cells if cell[3] or cell[0].casefold() in keys]
        return changed if any(cell[3] for cell in cells) else cells


@dataclass(frozen=True)
class BadRow:
    file: str
    row: int | None  # 1-based position of the record in its file
    column: str
    reason: str
    raw: str


@dataclass(frozen=True)
class Preview:
    """What a pipeline would load, as its source gives it. Nothing was written."""

    pipeline: str
    query: str  # as it is asked; empty for pipeline.py and for files
    inputs: tuple[tuple[str, str], ...]  # what is read, and in which version
    schema: tuple[tuple[str, str], ...]  # names and types of the columns
    rows: tuple[dict[str, object], ...]  # the first
    spark_plan: str


@dataclass(frozen=True)
class PlanReport:
    """What a load would do to one table for its next batch. Nothing was written."""

    pipeline: str
    table: str
    strategy: str
    shape: str  # Append, ReplaceTable, ReplaceSlices, Merge, View
    reason: str
    creates_table: bool
    counts: Counts
    files: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()  # those that would stop the load
    warnings: tuple[str, ...] = ()
    samples: tuple[RowSample, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    duplicates: int = 0  # rows of the table that go because another one has their key
    key: tuple[str, ...] = ()  # the columns by which rows are matched
    way: str = ""  # how the rows would be written, and why so
    sql: str = ""
    more_files: int = 0  # files that further batches would take
    failure: Failure | None = None
    quality: tuple[GateResult, ...] = ()  # what quality gates say about the table as it would be

    @property
    def empty(self) -> bool:
        return not self.files and self.failure is None

    @property
    def is_view(self) -> bool:
        """Then `sql` is what is kept, and there are no rows to count."""
        return self.strategy == "view"

    def show(self) -> None:
        sys.stdout.write(f"{self}\n")

    def __str__(self) -> str:
        """Plain lines, for notebooks and scripts; the command line draws it nicer."""
        if self.failure is not None:
            return f"{self.table}: {self.failure.code} {self.failure.message}"
        counts = ", ".join(f"{name} {number}" for name, number in self.counts.as_dict().items())
        lines = [f"{self.table}: {self.shape or 'nothing'} ({self.reason})", f"  {counts}"]
        lines += [f"  {change}" for change in self.schema_changes]
        lines += [f"  stopped by guard: {guard}" for guard in self.guards]
        lines += [f"  stopped by quality: {result}" for result in self.quality if result.stops]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        lines += [f"  {sample.label}: {self._in_words(sample)}" for sample in self.samples]
        lines += [f"  bad row: {bad.file} row {bad.row}: {bad.column} {bad.reason}" for bad in self.bad_rows]
        return "\n".join(lines)

    def _in_words(self, sample: RowSample) -> str:
        return ", ".join(
            f"{name}={before!r} -> {after!r}" if differs else f"{name}={after!r}"
            for name, before, after, differs in sample.cells(self.key)
        )


@dataclass(frozen=True)
class PipelineStatus:
    pipeline: str
    table: str
    strategy: str
    files: dict[str, int]  # state → number of files
    batches: int
    last_commit: Receipt | None
    last_error: Failure | None
    failed_files: tuple[tuple[str, int, str], ...]  # path, attempts, error
    quality: tuple[GateResult, ...] = ()  # of the last load that had gates, whether it failed or not


@dataclass(frozen=True)
class BatchRecord:
    """One line of `tallymark history`."""

    batch_id: str
    pipeline: str
    table: str
    state: str
    sequence: int
    attempts: int
    files: int
    as_of: datetime
    finished_at: datetime | None
    receipt: Receipt | None
    error: Failure | None


@dataclass(frozen=True)
class QuarantinedRow:
    id: str
    pipeline: str
    batch_id: str
    file: str
    row: int | None
    column: str
    reason: str
    raw: str
    quarantined_at: datetime


@dataclass(frozen=True)
class QuarantineSummary:
    pipeline: str
    batch_id: str
    rows: int
    files: int
    reasons: dict[str, int]
    quarantined_at: datetime


@dataclass(frozen=True)
class Finding:
    """One line of `tallymark doctor` or `validate`."""

    subject: str
    ok: bool
    detail: str
    fix: str = ""


class Step(StrEnum):
    DISCOVER = "discover"
    CLAIM = "claim"
    READ = "read"
    CHECK = "check"
    PLAN = "plan"
    APPLY = "apply"
    RECORD = "record"
    REPORT = "report"
    SPARK = "spark"  # session start, JARs


@dataclass(frozen=True)
class Event:
    """Progress, for whoever shows it. `done`/`total` where the step can be counted."""

    pipeline: str
    step: Step
    text: str
    done: int | None = None
    total: int | None = None
