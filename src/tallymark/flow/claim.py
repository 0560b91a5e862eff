"""Step 2: take the table, settle what an earlier worker left open, then hand out batches in order.

1. lease      one writer per table; its fence only grows
2. settle     an open batch is committed if its marker is in the table, else it is tried again before
              anything newer, so that an old file never overwrites a newer one; a committed one that the
              table no longer holds (restored, or created again) waits again
3. adopt      waiting contents that the table already holds (a lost ledger, another project) are recorded,
              not loaded
4. hand out   every batch is written into the ledger before it has any effect

`plan` goes through the same phases on a trial of the ledger, so it shows the batch that a run would load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tallymark.destinations.contract import TableMarkers, UnmarkedLoad
from tallymark.errors import (
    CheckError,
    CountsDoNotBalance,
    FileChanged,
    GateFailed,
    GuardTripped,
    LedgerError,
    PlanError,
    TableBusy,
    TallymarkError,
    TooManyBadRows,
    UnreadableFile,
)
from tallymark.flow.batching import next_contents, waiting_in_order
from tallymark.flow.discover import Discovered, Offer, discover, offer_of, register
from tallymark.flow.job import Job
from tallymark.flow.lease import HeldLease, held_lease
from tallymark.ledger.leases import Lease
from tallymark.ledger.ledger import Ledger
from tallymark.model.batch import OTHER_FENCE, Batch, BatchContents, Files, QueryResult, SourceFile
from tallymark.model.receipt import Applied, Counts, Receipt
from tallymark.model.report import Discovery, Failure, Step
from tallymark.model.section import redact, redacted

_NUMBERS_ASKED = 8  # of deliveries of one content, at a time
_BATCHED_AGAIN = Failure("TM000", "released to be batched again")


@contextmanager
def claim_table(job: Job) -> Iterator[Claim]:
    job.stop_if_cancelled()
    job.tell(Step.CLAIM, f"taking the lease of {job.task.table}")
    with held_lease(job.ledger, job.table_key, job.run.holder) as lease:
        yield Claim(job, lease)


class Claim:
    """The table while this worker holds its lease."""

    def __init__(self, job: Job, lease: HeldLease | TrialLease):
        self._job = job
        self._lease = lease
        self.retries: list[Batch] = []  # left open by an earlier worker
        self._table_sequence = 0
        self._max_files = job.task.max_files
        self._set_aside: set[str] = set()
        self.held_back: tuple[str, ...] = ()
        self.recovered: list[Receipt] = []
        self.undone: list[Batch] = []  # committed once, and no longer in the table

    @property
    def fence(self) -> int:
        return self._lease.lease.fence

    def ensure(self) -> None:
        """Raises LeaseLost."""
        self._lease.ensure()

    def settle(
        self,
        *,
        give_up: bool = True,
        markers: TableMarkers | None = None,
        also: Collection[str] | None = (),
    ) -> TableMarkers:
        """Phases 2 and 3. `markers` are those of `hashes_to_settle`, where they are known already. Returns
        those that it asked for: of `also` too, or of all contents if that is None."""
        job, ledger = self._job, self._job.ledger
        asked = hashes_to_settle(job) | set(also or ())
        markers = markers or job.target.markers(None if also is None else asked)
        self._table_sequence = markers.last_sequence
        self._lease.raise_fence(markers.last_fence)
        last = ledger.last_receipt(job.table_key)
        rolled_back = last is not None and last.sequence > markers.held_sequence
        for batch in ledger.open_batches(job.table_key):
            self._settle_open(batch, markers, give_up=give_up, rolled_back=rolled_back)
        self._undo_above(markers.held_sequence)
        if self.undone:  # a restored table can also hold an older load of the same contents
            undone = {content_hash for batch in self.undone for content_hash in batch.content_hashes}
            markers = job.target.markers(None if also is None else asked | undone)
        self._adopt(markers)
        return markers

    def _undo_above(self, sequence: int) -> None:
        job = self._job
        gone = Failure("TM508", f"{job.task.table} no longer holds this load", "it is loaded again", True)
        self.undone += job.ledger.undo_batches(self._lease.lease, above_sequence=sequence, error=gone)
        if self.undone:
            discover(job)  # their files may have vanished since they were loaded

    def _settle_open(self, batch: Batch, markers: TableMarkers, *, give_up: bool, rolled_back: bool) -> None:
        job = self._job
        found = [markers.by_hash.get(content_hash) for content_hash in batch.content_hashes]
        # Files that another batch has applied (a late writer, another ledger) are recorded as that one's.
        is_own = all(f and f.marker.batch_id == batch.id for f in found)
        if found[0] is not None and all(found) and (is_own or not isinstance(batch.contents, Files)):
            self._record(batch, found[0])
        elif markers.unmarked is not None and markers.unmarked.sequence == batch.sequence and not any(found):
            self._record_unmarked(batch, markers.unmarked)
        elif batch.pipeline != job.task.pipeline:
            raise LedgerError(
                f"{job.task.table}: pipeline {batch.pipeline} has left batch {batch.id} open",
                hint=f"run `tallymark run {batch.pipeline}` first",
            )
        elif any(found) or markers.last_sequence >= batch.sequence or rolled_back:
            # Another writer applied a part of it, or has used its sequence, so that it can never commit. Or
            # the table was rolled back: what it lost goes first, and is undone only when no open batch is
            # left that a worker after a crash would take before it. What is not applied is batched again.
            self.release(batch)
        elif give_up and batch.attempt >= job.task.max_attempts:
            job.ledger.fail_batch(self._lease.lease, batch.id, _gave_up(batch))
        else:
            self.retries.append(batch)

    def _adopt(self, markers: TableMarkers) -> None:
        job = self._job
        waiting = {entry.content.identity: entry.content for entry in waiting_in_order(job)}
        by_batch: dict[str, list[SourceFile | QueryResult]] = {}
        for content_hash, content in waiting.items():
            if applied := markers.by_hash.get(content_hash):
                by_batch.setdefault(applied.marker.batch_id, []).append(content)
        for batch_id, contents in by_batch.items():
            applied = markers.by_hash[contents[0].identity]
            batch = Batch(
                id=batch_id,
                pipeline=job.task.pipeline,
                table_key=job.table_key,
                contents=_together(contents),
                sequence=applied.marker.sequence,
                as_of=applied.marker.as_of,
            )
            receipt = receipt_from_marker(job, applied)
            job.ledger.adopt(job.task.pipeline, job.table_key, batch, receipt, applied.marker.fence)
            self.recovered.append(receipt)

    def next_retry(self) -> Batch | None:
        """What an earlier worker left open goes before anything newer."""
        if not self.retries:
            return None
        self._job.stop_if_cancelled()
        open_batch = self.retries.pop(0)
        return self._job.ledger.retry_batch(self._lease.lease, open_batch.id, self._job.run.id)

    def next_batch(self) -> Batch | None:
        """Phase 4."""
        if retry := self.next_retry():
            return retry
        choice = next_contents(self._job, self._set_aside, self._max_files)
        self.held_back = choice.held_back
        return None if choice.contents is None else self.create(choice.contents)

    def create(self, contents: BatchContents) -> Batch:
        self._job.stop_if_cancelled()
        return self._job.ledger.create_batch(
            self._lease.lease,
            self._job.run.id,
            self._job.task.pipeline,
            contents,
            as_of=self._job.now(),
            sequence_above=self._table_sequence,
        )

    def commit(self, batch: Batch, receipt: Receipt) -> None:
        self._job.ledger.commit_batch(self._lease.lease, batch.id, receipt)

    def set_aside(self, unreadable: Sequence[UnreadableFile]) -> None:
        """A file that could not even be hashed keeps its place in the order."""
        self._set_aside.update(error.path for error in unreadable)

    def fail(self, batch: Batch, error: TallymarkError) -> None:
        """Only when it is certain that nothing was written."""
        if self.isolates(batch, error):
            self._max_files = max(1, len(batch.members) // 2)
            self.release(batch)
            return
        blamed = _blamed(error)
        failure = failure_of(error)
        nobody = isinstance(error, TableBusy | CountsDoNotBalance)
        self._job.ledger.fail_batch(
            self._lease.lease, batch.id, failure, blamed=() if nobody else blamed or None
        )
        self._set_aside.update(blamed or batch.names)

    def isolates(self, batch: Batch, error: TallymarkError) -> bool:
        """Some file of many is at fault and the error does not say which: batches are halved until it is
        alone."""
        return _blamed(error) == () and len(batch.members) > 1

    def release(self, batch: Batch, why: Failure = _BATCHED_AGAIN) -> None:
        """Its contents wait again, and none of them has used up an attempt."""
        self._job.ledger.fail_batch(self._lease.lease, batch.id, why, blamed=())

    def _record(self, batch: Batch, applied: Applied) -> None:
        receipt = receipt_from_marker(self._job, applied)
        is_own = applied.marker.batch_id == batch.id
        fence = applied.marker.fence if is_own else OTHER_FENCE
        self._job.ledger.commit_batch(self._lease.lease, batch.id, receipt, fence)
        self.recovered.append(receipt)

    def _record_unmarked(self, batch: Batch, load: UnmarkedLoad) -> None:
        """No two loads of a table have one sequence, and the ledger knows which contents this one had."""
        receipt = Receipt(
            batch_id=batch.id,
            pipeline=batch.pipeline,
            table=self._job.task.table,
            strategy=self._job.task.strategy,
            counts=Counts(),
            version=load.version,
            sequence=load.sequence,
            committed_at=load.committed_at,
            warnings=(
                f"batch {batch.id} was committed, as its number {load.sequence} in the table shows; what it "
                "did is no longer known, since the table's log was cleaned up before the marker was copied",
            ),
        )
        self.commit(batch, receipt)
        self.recovered.append(receipt)


@dataclass
class TrialLease:
    """Of a table whose next batch is only planned."""

    ledger: Ledger
    lease: Lease

    def ensure(self) -> None:
        """Nothing is committed, so nobody can be too late."""

    def raise_fence(self, above: int) -> None:
        self.lease = self.ledger.raise_fence(self.lease, above=above)


@dataclass(frozen=True)
class PlannedBatch:
    """The batch that a run would load first; None: nothing is new."""

    batch: Batch | None = None
    behind: int = 0  # contents that wait behind it
    warnings: tuple[str, ...] = ()  # of discovery


def planned_batch(job: Job) -> PlannedBatch:
    """What takes time, listing the source and asking the table, is done before the trial, which locks the
    table in the ledger; only a table that was rolled back is asked once more in it."""
    offer = offer_of(job)
    found = _on_trial(job, offer) if offer.contents else Discovered(Discovery(), ())
    asked = hashes_to_settle(job) | {content.identity for content in found.new}
    rolled_back = was_rolled_back(job)
    if not (asked or rolled_back):
        return PlannedBatch(warnings=found.warnings)
    markers = job.target.markers(asked)

    def attempt(ledger: Ledger, lease: Lease) -> PlannedBatch:
        run_id = ledger.start_run("", "plan", host="", pid=0)
        trial = replace(job, ledger=ledger, run=replace(job.run, id=run_id))
        found = register(trial, offer)
        if not (rolled_back or has_work(trial, found)):
            return PlannedBatch(warnings=found.warnings)
        claim = Claim(trial, TrialLease(ledger, lease))
        claim.settle(markers=markers)
        claim.set_aside(found.unreadable)
        batch = claim.next_batch()
        behind = len(ledger.waiting_contents(job.task.pipeline, table_key=job.table_key))
        return PlannedBatch(batch, behind, found.warnings)

    return job.ledger.trial(job.table_key, attempt)


def _on_trial(job: Job, offer: Offer) -> Discovered:
    """What registering would say. A file's identity depends on the deliveries before it."""
    return job.ledger.trial(job.table_key, lambda ledger, _: register(replace(job, ledger=ledger), offer))


def has_work(job: Job, found: Discovered) -> bool:
    """Whether a batch is open or could be made. Needs no Spark, so that a run with nothing to do is cheap."""
    unreadable = [error.path for error in found.unreadable]
    return bool(
        job.ledger.open_batches(job.table_key) or next_contents(job, unreadable, job.task.max_files).contents
    )


def was_rolled_back(job: Job) -> bool:
    last = job.ledger.last_receipt(job.table_key)
    return last is not None and job.connections.was_rolled_back(last)


def hashes_to_settle(job: Job) -> set[str]:
    """Of all contents that are in an open batch or wait."""
    open_batches = job.ledger.open_batches(job.table_key)
    asked = {content_hash for batch in open_batches for content_hash in batch.content_hashes}
    return asked | {entry.content.identity for entry in waiting_in_order(job)}


def delivered_again(job: Job) -> tuple[tuple[SourceFile, ...], TableMarkers]:
    """The files that wait, as their next deliveries, if the table holds each of them, and none in its latest
    load. Else none: one of them is new, or what the table got last. With the markers of what waits."""
    files = [c for entry in waiting_in_order(job) if isinstance(c := entry.content, SourceFile)]
    first: TableMarkers | None = None
    again: dict[SourceFile, SourceFile] = {}
    start = 0
    while True:
        asked = {
            file: [replace(file, returned=n) for n in range(start, start + _NUMBERS_ASKED)]
            for file in files
            if file not in again
        }
        markers = job.target.markers({one.identity for some in asked.values() for one in some})
        first = first or markers
        for file, deliveries in asked.items():
            held = [one for one in deliveries if one.identity in markers.by_hash]
            latest = any(
                markers.by_hash[one.identity].marker.sequence == markers.held_sequence for one in held
            )
            if latest or (not held and start == 0):
                return (), first
            last = held[-1].returned if held else start - 1
            if last < deliveries[-1].returned:
                again[file] = replace(file, returned=last + 1)
        if len(again) == len(files):
            return tuple(again.values()), first
        start += _NUMBERS_ASKED


def receipt_from_marker(job: Job, applied: Applied) -> Receipt:
    marker = applied.marker
    return Receipt(
        batch_id=marker.batch_id,
        pipeline=job.task.pipeline,
        table=job.task.table,
        strategy=marker.strategy,
        counts=marker.counts,
        version=applied.version,
        sequence=marker.sequence,
        committed_at=applied.committed_at,
        watermark=marker.watermark,
    )


def failure_of(error: TallymarkError) -> Failure:
    """Goes into ledger and reports, so secrets that a driver put into its message are removed here."""
    facts = {name: redacted(fact) for name, fact in error.facts.items()}
    return Failure(error.code, redact(error.message), redact(error.hint), error.retry_safe, facts)


def _together(contents: Sequence[SourceFile | QueryResult]) -> BatchContents:
    """Contents that one marker names: files, or the result of a query."""
    match contents:
        case [QueryResult() as result]:
            return result
        case _:
            return Files(tuple(content for content in contents if isinstance(content, SourceFile)))


def _blamed(error: TallymarkError) -> tuple[str, ...] | None:
    """The files at fault; () if it is some of them but unknown which; None if it is none of them."""
    match error:
        case UnreadableFile(path=path) | FileChanged(path=path):
            return (path,)
        case TooManyBadRows():
            named = error.facts.get("blamed")
            return tuple(str(path) for path in named) if isinstance(named, list) else ()
        case GuardTripped() | GateFailed():
            return None
        case CheckError() | PlanError():
            return ()
        case _:
            return None


def _gave_up(batch: Batch) -> Failure:
    return Failure(
        "TM506",
        f"batch {batch.id} was tried {batch.attempt} times and never finished",
        "look at `tallymark history`, then `tallymark requeue` its files",
    )
