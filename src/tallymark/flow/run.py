"""The story of a load: discover → claim → read → check → plan → apply with marker → record → report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from tallymark.errors import (
    Cancelled,
    CheckError,
    CommitUnknown,
    Fenced,
    LeaseHeld,
    LedgerError,
    PlanError,
    RowsRefused,
    SourceError,
    TableMoved,
    TallymarkError,
)
from tallymark.flow.batching import waiting_in_order
from tallymark.flow.claim import Claim, claim_table, failure_of, has_work, was_rolled_back
from tallymark.flow.discover import Discovered, discover
from tallymark.flow.job import Job
from tallymark.flow.transform.archive import archive_committed
from tallymark.flow.transform.views import make_view
from tallymark.model.batch import Batch
from tallymark.model.receipt import Receipt
from tallymark.model.report import Discovery, Failure, Outcome, PipelineReport, Step

log = logging.getLogger(__name__)

PLANS_PER_BATCH = 4  # a table that other writers keep changing is not retried for ever


def run_pipeline(job: Job) -> PipelineReport:
    progress = PipelineProgress(job)
    try:
        job.stop_if_cancelled()
        found = discover(job)
        progress.discovered(found)
        progress.report_stuck_files(found)
        if has_work(job, found) or was_rolled_back(job):
            with claim_table(job) as claim:
                progress.recovered, progress.undone = claim.recovered, claim.undone
                claim.settle()
                load_all(job, claim, progress, found)
                progress.settle_markers()
        if job.task.archive:
            progress.warnings += archive_committed(job)
    except TallymarkError as error:
        progress.failed(error)
    except Exception as error:
        log.exception("unexpected error in %s", job.task.pipeline)
        progress.failed(
            TallymarkError(f"unexpected error: {error!r}", hint="please report it, with --verbose")
        )
    return progress.report()


def load_all(job: Job, claim: Claim, progress: PipelineProgress, found: Discovered) -> None:
    claim.set_aside(found.unreadable)
    while batch := claim.next_batch():
        load_one(job, claim, progress, batch)
    progress.held_back = claim.held_back


def load_one(job: Job, claim: Claim, progress: PipelineProgress, batch: Batch) -> bool:
    """Returns whether the batch was committed."""
    job = replace(job, batch_id=batch.id)
    try:
        receipt = load_planning_again(job, claim, batch)
    except (CommitUnknown, Fenced, LedgerError):
        raise  # not settled here: the batch stays open, and whoever claims next asks its marker
    except Cancelled as cancelled:  # before the commit: its contents wait for the next run
        claim.release(batch, failure_of(cancelled))
        raise
    except TallymarkError as error:
        if not claim.isolates(batch, error):
            progress.failed(_naming_its_file(job, batch, error))
        claim.fail(batch, error)
        return False
    job.tell(Step.RECORD, f"recording batch {batch.id}")
    claim.commit(batch, receipt)
    job.tell(Step.REPORT, f"batch {batch.id} committed")
    progress.loaded(receipt)
    return True


def _naming_its_file(job: Job, batch: Batch, error: TallymarkError) -> TallymarkError:
    """Checks, plans and tables see rows, not files; in a batch of one file it is clear which one it was."""
    query = job.task.query
    path = batch.names[0] if query is None else query.transform.file
    of_rows = isinstance(error, CheckError | PlanError | RowsRefused)
    if of_rows and len(batch.members) == 1 and path not in error.message:
        error.message = f"{path}: {error.message}"
        error.facts.setdefault("path", path)
    return error


def load_planning_again(job: Job, claim: Claim, batch: Batch) -> Receipt:
    """A foreign commit between plan and apply makes the plan stale, so it is made again."""
    from tallymark.flow.load import (
        load_batch,
    )  # and with it Spark, which a run with nothing new does not need

    load = make_view if job.task.is_view else load_batch
    for attempt in range(1, PLANS_PER_BATCH + 1):
        try:
            return load(job, batch, claim.fence, claim.ensure)
        except TableMoved:
            if attempt == PLANS_PER_BATCH:
                raise
    raise AssertionError("unreachable")


@dataclass
class PipelineProgress:
    """What has happened so far in one pipeline; becomes its report."""

    job: Job
    discovery: Discovery = field(default_factory=Discovery)
    receipts: list[Receipt] = field(default_factory=list)
    recovered: list[Receipt] = field(default_factory=list)
    undone: list[Batch] = field(default_factory=list)
    still_open: list[Batch] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    held_back: tuple[str, ...] = ()
    busy: bool = False
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)

    def discovered(self, found: Discovered) -> None:
        self.discovery = found.report
        self.warnings.extend(found.warnings)

    def loaded(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)
        self.warnings.extend(w for w in receipt.warnings if w not in self.warnings)

    def report_stuck_files(self, found: Discovered) -> None:
        """Files that are out of retries fail every run until they are repaired."""
        for unreadable in found.unreadable:
            self.failed(unreadable)
        task = self.job.task
        waiting = waiting_in_order(self.job)
        stuck = [entry for entry in waiting if entry.is_stuck(task.max_attempts)]
        if refused := [entry for entry in stuck if entry.attempts == 0]:
            self.failed(
                SourceError(
                    f"{len(refused)} files are refused by repeated_content: fail, first "
                    f"{refused[0].content.name}: {refused[0].error}",
                    hint=f"remove them, or load them again with `tallymark requeue {task.pipeline}`",
                )
            )
        if stuck := [entry for entry in stuck if entry.attempts > 0]:
            self.failed(
                SourceError(
                    f"{len(stuck)} files failed {task.max_attempts} times and are not retried, first "
                    f"{stuck[0].content.name}: {stuck[0].error}",
                    hint=f"after repair: `tallymark requeue {task.pipeline}`",
                )
            )

    def failed(self, error: TallymarkError) -> None:
        self.busy |= isinstance(error, LeaseHeld)
        self.cancelled |= isinstance(error, Cancelled)
        self.failures.append(failure_of(error))

    def settle_markers(self) -> None:
        """Markers that are not copied now are copied by the next run: no load depends on it."""
        if not (self.receipts or self.recovered or self.undone):
            return
        try:
            self.job.target.settle()
        except Exception as error:
            self.warnings.append(f"markers were not copied; the next run copies them: {error}")

    def report(self) -> PipelineReport:
        return PipelineReport(
            pipeline=self.job.task.pipeline,
            table=self.job.task.table,
            outcome=self._outcome(),
            receipts=tuple(self.receipts),
            discovery=self.discovery,
            recovered=tuple(self.recovered),
            undone=tuple(batch.id for batch in self.undone),
            still_open=tuple(batch.id for batch in self.still_open),
            failures=tuple(self.failures),
            held_back=self.held_back,
            warnings=tuple(dict.fromkeys([*self._of_recovered(), *self.warnings])),
            seconds=time.monotonic() - self.started,
        )

    def _of_recovered(self) -> Iterator[str]:
        return (warning for receipt in self.recovered for warning in receipt.warnings)

    def _outcome(self) -> Outcome:
        if self.cancelled:
            return Outcome.CANCELLED
        if self.busy:
            return Outcome.BUSY
        if self.failures:
            return Outcome.FAILED
        return Outcome.LOADED if self.receipts else Outcome.NOTHING_NEW


def run_in_order(
    jobs: Sequence[Job],
    levels: Sequence[Collection[str]],
    work: Callable[[Job], PipelineReport],
    workers: int,
) -> tuple[PipelineReport, ...]:
    """What reads a table runs after what fills it; what is independent runs side by side."""
    reports: list[PipelineReport] = []
    for level in levels:
        reports += run_side_by_side([job for job in jobs if job.task.pipeline in level], work, workers)
    return tuple(reports)


def run_side_by_side(
    jobs: Sequence[Job], work: Callable[[Job], PipelineReport], workers: int
) -> tuple[PipelineReport, ...]:
    """Each pipeline has its own Spark session; one that fails harms no other."""
    with ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="pipeline") as pool:
        return tuple(pool.map(work, jobs))
