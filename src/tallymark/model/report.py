"""What the library reports: the same values for the terminal, for `--json` and for callers of the library.

`model/documents.py` gives them their JSON shape.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from tallymark.errors import Cancelled
from tallymark.model.gate import GateResult
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.table import is_provenance


class Outcome(StrEnum):
    LOADED = "loaded"  # at least one batch was committed
    NOTHING_NEW = "nothing_new"
    FAILED = "failed"
    BUSY = "busy"  # another worker holds the table's lease
    CANCELLED = "cancelled"  # by the caller; batches that were committed before stay committed


@dataclass(frozen=True)
class PrepareReport:
    """The archive of Java classes that `tallymark prepare` wrote."""

    archive: Path
    bytes: int


@dataclass(frozen=True)
class Failure:
    """An error as data, as `TallymarkError.as_dict` returns it."""

    code: str
    message: str
    hint: str = ""
    retry_safe: bool = False
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RepeatedFile:
    """A file whose content is already on record under another path."""

    path: str
    repeats: str


@dataclass(frozen=True)
class DeferredInput:
    """A file, or an input of a transform, that is left for the next run."""

    path: str
    reason: str


@dataclass(frozen=True)
class Discovery:
    """What the source holds. `listed` and `new` count files."""

    listed: int = 0
    new: int = 0
    duplicates: tuple[RepeatedFile, ...] = ()
    waiting: tuple[DeferredInput, ...] = ()
    returned: tuple[RepeatedFile, ...] = ()  # of the new ones: they bring back what the table had before


@dataclass(frozen=True)
class PipelineReport:
    pipeline: str
    table: str
    outcome: Outcome
    receipts: tuple[Receipt, ...] = ()
    discovery: Discovery = Discovery()
    recovered: tuple[Receipt, ...] = ()  # commits that an earlier worker made but did not record
    undone: tuple[str, ...] = ()  # batches that the table no longer holds; their files are loaded again
    still_open: tuple[str, ...] = ()  # batches that are not committed; the next run retries them first
    failures: tuple[Failure, ...] = ()
    held_back: tuple[str, ...] = ()  # files behind a failed one, where the strategy depends on order
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
        return all(p.outcome not in (Outcome.FAILED, Outcome.CANCELLED) for p in self.pipelines)


@dataclass(frozen=True)
class RowSample:
    label: str
    before: dict[str, object] | None
    after: dict[str, object] | None

    def cells(self, key: Collection[str] = ()) -> list[tuple[str, object, object, bool]]:
        """(column, before, after, whether they differ), without provenance columns. For a row that exists
        before and after the load: only the key and the values that differ."""
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
class PreviewInput:
    """A table, landing zone or file that a preview read, and its version."""

    name: str
    version: str


@dataclass(frozen=True)
class PreviewColumn:
    name: str
    type: str  # in Spark's words


@dataclass(frozen=True)
class Preview:
    """What the source of a pipeline returns now. Nothing is written."""

    pipeline: str
    query: str  # the rendered query; empty for pipeline.py and for files
    inputs: tuple[PreviewInput, ...]
    schema: tuple[PreviewColumn, ...]
    rows: tuple[dict[str, object], ...]  # the first ones
    spark_plan: str


@dataclass(frozen=True)
class PlanReport:
    """What the next load would do to one table. Nothing is written."""

    pipeline: str
    table: str
    strategy: str
    shape: str  # Append, ReplaceTable, ReplaceSlices, Merge, View
    reason: str
    creates_table: bool
    counts: Counts
    files: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()  # guards that would stop the load
    warnings: tuple[str, ...] = ()
    samples: tuple[RowSample, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    duplicates: int = 0  # rows of the table that are removed because another row has their key
    key: tuple[str, ...] = ()  # the columns that match rows
    way: str = ""  # how the rows would be written, and why
    sql: str = ""
    more_files: int = 0  # files that are left for later batches
    failure: Failure | None = None
    quality: tuple[GateResult, ...] = ()  # of the table as it would be after the load

    @property
    def empty(self) -> bool:
        return not self.files and self.failure is None

    @property
    def is_view(self) -> bool:
        """A view stores `sql` and has no rows to count."""
        return self.strategy == "view"

    def show(self) -> None:
        sys.stdout.write(f"{self}\n")

    def __str__(self) -> str:
        """Plain lines for notebooks and scripts. The command line has its own layout."""
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
class FailedFile:
    path: str
    attempts: int
    error: str


@dataclass(frozen=True)
class PipelineStatus:
    pipeline: str
    table: str
    strategy: str
    files: dict[str, int]  # state → number of files
    batches: int
    last_commit: Receipt | None
    last_error: Failure | None
    failed_files: tuple[FailedFile, ...]
    quality: tuple[GateResult, ...] = ()  # of the last load with quality gates, committed or failed


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
class Requeued:
    """How many failed files of a pipeline the next run retries."""

    pipeline: str
    files: int


@dataclass(frozen=True)
class RowsDropped:
    """How many rows of a batch were deleted from the quarantine."""

    pipeline: str
    batch_id: str
    rows: int


@dataclass(frozen=True)
class RowsExported:
    """How many quarantined rows were written to a file."""

    rows: int
    file: Path


class SettingOrigin(StrEnum):
    ANNOTATION = "annotation"
    PIPELINE = "config.yaml"
    PROJECT = "tallymark.yaml"
    DEFAULT = "default"


@dataclass(frozen=True)
class EffectiveSetting:
    key: str  # such as guards.max_delete_fraction
    value: object  # text, numbers, lists and mappings, without secrets
    origin: SettingOrigin
    file: str = ""  # empty for a default
    line: int = 0

    @property
    def place(self) -> str:
        """`pipelines/gold/revenue/pipeline.sql:2`, or `default`."""
        return f"{self.file}:{self.line}" if self.file else str(self.origin)


@dataclass(frozen=True)
class SettingsReport:
    """Every setting of a pipeline, in the order of the reference."""

    pipeline: str
    settings: tuple[EffectiveSetting, ...]


@dataclass(frozen=True)
class MermaidDiagram:
    """The graph of a project in Mermaid's language."""

    mermaid: str


@dataclass(frozen=True)
class ProjectCreated:
    """The files that `tallymark init` wrote, and the pipeline that it added."""

    folder: Path
    created: tuple[Path, ...]
    pipeline: str | None


@dataclass(frozen=True)
class SchemasWritten:
    written: tuple[Path, ...]


@dataclass(frozen=True)
class VersionNumber:
    version: str


@dataclass(frozen=True)
class Finding:
    """One line of `tallymark doctor` or `validate`. What is `ok` and has a `fix` is a warning."""

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
    SPARK = "spark"  # starting a session, downloading JARs


@dataclass(frozen=True)
class Event:
    """Progress. `done` and `total` are set if the step can be counted. `pipeline` is empty for a step of the
    whole run, `run_id` outside a run (`plan`, for example), `batch_id` before a batch is claimed."""

    pipeline: str
    step: Step
    text: str
    done: int | None = None
    total: int | None = None
    run_id: str = ""
    batch_id: str = ""


class RunState(StrEnum):
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    ABANDONED = "ABANDONED"  # its process ended without recording the end of the run
    UNKNOWN = "UNKNOWN"  # not finished; its process is on another machine and holds no lease


@dataclass(frozen=True)
class RunRecord:
    """One command that loads, as the ledger knows it: `run`, `recover` or `replay`."""

    run_id: str
    project: str
    command: str
    host: str
    pid: int
    state: RunState
    started_at: datetime
    finished_at: datetime | None
    outcomes: dict[str, Outcome | None]  # by pipeline; None until the run ends
    batches: tuple[BatchRecord, ...] = ()  # whose last attempt was in this run; only of a single run


@dataclass(frozen=True)
class Cancellation:
    """Give it to a call, and `cancel` it from any thread. The work stops between two steps of its flow, never
    in a commit: batches that are committed stay committed, nothing is half-written."""

    _requested: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def cancel(self) -> None:
        self._requested.set()

    @property
    def is_set(self) -> bool:
        return self._requested.is_set()

    def check(self) -> None:
        """Raises Cancelled after `cancel`."""
        if self.is_set:
            raise Cancelled
