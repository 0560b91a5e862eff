"""Step 2: take the table, settle what an earlier worker left open, then hand out batches in order.

1. lease      one writer per table; its fence only grows
2. settle     an open batch is committed if its marker is in the table, else it is tried again before
              anything newer, so that an old file never overwrites a newer one; a committed one that the
              table no longer holds (restored, made anew) waits again
3. adopt      waiting contents that the table already holds (a lost ledger, another project) are recorded,
              not loaded
4. hand out   every batch is written into the ledger before it has any effect
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tallymark.destinations.contract import TableMarkers
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
from tallymark.flow.batching import Choice, choose
from tallymark.flow.discover import discover
from tallymark.flow.job import Job
from tallymark.flow.lease import HeldLease, held_lease
from tallymark.ledger.facts import WaitingFile
from tallymark.model.batch import REPLAY_PREFIX, Batch, BatchKind, FileState, SourceFile
from tallymark.model.marker import Applied
from tallymark.model.receipt import Receipt
from tallymark.model.report import Failure, Step
from tallymark.model.secrets import redact
from tallymark.sources.discover import order_files


@contextmanager
def claim_table(job: Job) -> Iterator[Claim]:
    job.tell(Step.CLAIM, f"taking the lease of {job.task.table}")
    with held_lease(job.ledger, job.table_key, job.holder) as lease:
        yield Claim(job, lease)


class Claim:
    def __init__(self, job: Job, lease: HeldLease):
        self._job = job
        self.lease = lease
        self.retries: list[Batch] = []  # left open by an earlier worker
        self._table_sequence = 0
        self._max_files = job.task.max_files
        self._set_aside: set[str] = set()
        self.held_back: tuple[str, ...] = ()
        self.recovered: list[Receipt] = []
        self.undone: list[Batch] = []  # committed once, and gone from the table

    def settle(self, *, give_up: bool = True) -> None:
        """Phases 2 and 3."""
        job, ledger = self._job, self._job.ledger
        open_batches = ledger.open_batches(job.table_key)
        asked = {content_hash for batch in open_batches for content_hash in batch.content_hashes}
        asked.update(entry.file.content_hash for entry in waiting_in_order(job))
        markers = job.target.markers(asked)
        self._table_sequence = markers.last_sequence
        self.lease.raise_fence(markers.last_fence)
        last = ledger.last_receipt(job.table_key)
        rolled_back = last is not None and last.sequence > markers.held_sequence
        for batch in open_batches:
            self._settle_open(batch, markers, give_up=give_up, rolled_back=rolled_back)
        self._undo_above(markers.held_sequence)
        if self.undone:  # going back can also bring back an older load of the same contents
            undone = {content_hash for batch in self.undone for content_hash in batch.content_hashes}
            markers = job.target.markers(asked | undone)
        self._adopt(markers)

    def _undo_above(self, sequence: int) -> None:
        job = self._job
        gone = Failure("TM508", f"{job.task.table} no longer holds this load", "it is loaded again", True)
        self.undone += job.ledger.undo_batches(self.lease.lease, above_sequence=sequence, error=gone)
        if self.undone:
            discover(job)  # their files may have vanished since they were loaded

    def _settle_open(self, batch: Batch, markers: TableMarkers, *, give_up: bool, rolled_back: bool) -> None:
        job = self._job
        found = [markers.by_hash.get(content_hash) for content_hash in batch.content_hashes]
        # Files that another batch has applied (of a late writer, of another ledger) are recorded as its own.
        own = batch.kind is not BatchKind.FILES or all(f and f.marker.batch_id == batch.id for f in found)
        if found[0] is not None and all(found) and own:
            self._record_found(batch, found[0])
        elif batch.pipeline != job.task.pipeline:
            raise LedgerError(
                f"{job.task.table}: pipeline {batch.pipeline} has left batch {batch.id} open",
                hint=f"run `tallymark run {batch.pipeline}` first",
            )
        elif any(found) or markers.last_sequence >= batch.sequence or rolled_back:
            # Another writer applied some of it, or has used its number, so that it can never commit; or
            # what the table no longer holds goes before it, and is undone only when no open batch is left
            # that whoever comes after a crash would take first. What is not applied becomes a new batch.
            self._release(batch)
        elif give_up and batch.attempt >= job.task.max_attempts:
            job.ledger.fail_batch(self.lease.lease, batch.id, _gave_up(batch))
        else:
            self.retries.append(batch)

    def next_retry(self) -> Batch | None:
        """What an earlier worker left open goes before anything newer."""
        if not self.retries:
            return None
        open_batch = self.retries.pop(0)
        return self._job.ledger.retry_batch(self.lease.lease, open_batch.id, self._job.run_id)

    def next_batch(self) -> Batch | None:
        """Phase 4."""
        if retry := self.next_retry():
            return retry
        choice = next_files(self._job, self._set_aside, self._max_files)
        self.held_back = choice.held_back
        if not choice.files:
            return None
        return self.create(self._job.task.batch_kind, choice.files)

    def create(self, kind: BatchKind, files: tuple[SourceFile, ...]) -> Batch:
        return self._job.ledger.create_batch(
            self.lease.lease,
            self._job.run_id,
            self._job.task.pipeline,
            kind,
            files,
            as_of=self._job.clock(),
            sequence_above=self._table_sequence,
        )

    def set_aside(self, unreadable: UnreadableFile) -> None:
        """A file that could not even be hashed still holds its place in the order."""
        self._set_aside.add(unreadable.path)

    def fail(self, batch: Batch, error: TallymarkError) -> None:
        """Only when it is certain that nothing was written."""
        blamed = _blamed(batch, error)
        if blamed == () and len(batch.files) > 1:
            # Some file of many is at fault, and the error does not say which: halve until it is alone.
            self._max_files = max(1, len(batch.files) // 2)
            self._release(batch)
            return
        failure = failure_of(error)
        innocent = isinstance(error, TableBusy | CountsDoNotBalance)
        self._job.ledger.fail_batch(
            self.lease.lease, batch.id, failure, blamed=() if innocent else blamed or None
        )
        self._set_aside.update(blamed or [file.path for file in batch.files])

    def isolating(self, batch: Batch, error: TallymarkError) -> bool:
        return _blamed(batch, error) == () and len(batch.files) > 1

    def _release(self, batch: Batch) -> None:
        nobody = Failure("TM000", "released to be batched again")
        self._job.ledger.fail_batch(self.lease.lease, batch.id, nobody, blamed=())

    def _adopt(self, markers: TableMarkers) -> None:
        job = self._job
        waiting = {entry.file.content_hash: entry.file for entry in waiting_in_order(job)}
        by_batch: dict[str, list[str]] = {}
        for content_hash in waiting:
            if applied := markers.by_hash.get(content_hash):
                by_batch.setdefault(applied.marker.batch_id, []).append(content_hash)
        for batch_id, hashes in by_batch.items():
            applied = markers.by_hash[hashes[0]]
            files = tuple(waiting[content_hash] for content_hash in hashes)
            batch = Batch(
                id=batch_id,
                pipeline=job.task.pipeline,
                table_key=job.table_key,
                kind=job.task.batch_kind,
                files=files,
                sequence=applied.marker.sequence,
                as_of=applied.marker.as_of,
            )
            receipt = receipt_from_marker(job, applied)
            job.ledger.adopt(job.task.pipeline, job.table_key, batch, receipt)
            self.recovered.append(receipt)

    def _record_found(self, batch: Batch, applied: Applied) -> None:
        receipt = receipt_from_marker(self._job, applied)
        self._job.ledger.commit_batch(self.lease.lease, batch.id, receipt)
        self.recovered.append(receipt)


def waiting_in_order(job: Job, unhashed: Collection[str] = ()) -> list[WaitingFile]:
    """Registered files that are not loaded, in the order in which they apply; files that could not even
    be hashed hold their places."""
    entries = {
        entry.file.path: entry
        for entry in job.ledger.waiting_files(job.task.pipeline, table_key=job.table_key)
    }
    for path in set(unhashed) - entries.keys():
        entries[path] = WaitingFile(SourceFile(path, 0, 0, ""), FileState.FAILED, 0, "cannot be read")
    files = [e.file for e in entries.values() if not e.file.path.startswith(REPLAY_PREFIX)]
    return [entries[file.path] for file in order_files(files, job.task.order)]


def next_files(job: Job, set_aside: Collection[str], max_files: int) -> Choice:
    return choose(
        waiting_in_order(job, set_aside),
        ordered=job.task.ordered,
        max_files=max_files,
        max_bytes=job.task.batch.max_bytes_value,
        max_attempts=job.task.max_attempts,
        set_aside=set_aside,
    )


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
    """Goes into ledger and reports, so secrets that a driver put into its message are taken out here."""
    facts = json.loads(redact(json.dumps(error.facts, default=str)))
    return Failure(error.code, redact(error.message), redact(error.hint), error.retry_safe, facts)


def _blamed(batch: Batch, error: TallymarkError) -> tuple[str, ...] | None:
    """The files at fault; () when it is some of them but unknown which; None when it is none of them."""
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
