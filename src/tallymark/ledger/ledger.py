"""The ledger's front door: every method is one short transaction, done whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from tallymark.errors import LedgerError
from tallymark.ledger import batches, leases, reading, runs
from tallymark.ledger import contents as records
from tallymark.ledger.contents import Registration, WaitingContent
from tallymark.ledger.database import Address, Database, OneTransaction, Tx, parse_address, utc_now
from tallymark.ledger.leases import Lease
from tallymark.ledger.migrations import migrate, version
from tallymark.ledger.reading import PipelineSummary
from tallymark.ledger.repeats import Repeats, renamed_from
from tallymark.ledger.runs import ProcessProbe
from tallymark.ledger.schema import HEAD
from tallymark.model.batch import (
    Batch,
    BatchContents,
    BatchState,
    Content,
    Fate,
    FileStat,
    QueryResult,
    SourceFile,
)
from tallymark.model.private_files import make_private_file, private_folder
from tallymark.model.receipt import Receipt
from tallymark.model.report import BatchRecord, Failure, Outcome, RunRecord, RunState

T = TypeVar("T")


def open_ledger(url: str, *, clock: Callable[[], datetime] = utc_now, durable: bool = True) -> Ledger:
    """Creates the database file and the tables where they are missing, and brings old ones up to date.

    `sqlite:///relative/or//absolute/path.db` or `postgresql://user:password@host/database`. One that is not
    `durable` need not survive a power cut.
    """
    address = parse_address(url)
    if address.is_sqlite:
        _make_folder(address)
    database = Database(address, clock, durable=durable)
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return Ledger(database)


@contextmanager
def temporary_ledger() -> Iterator[Ledger]:
    """An empty ledger for one call, removed at its end: a library call has no project to keep one in.

    It is a file, since a SQLite database in memory is not safe to share between threads, and the lease is
    renewed by a thread of its own.
    """
    # A file that cannot be removed must not hide how the call ended.
    with TemporaryDirectory(prefix="tallymark-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "ledger.db"
        file.write_bytes(_empty_ledger())
        with open_ledger(f"sqlite:///{file}", durable=False) as ledger:
            yield ledger


@cache
def _empty_ledger() -> bytes:
    """Migrated once: for each call anew, that took longer than finding a content already applied."""
    with TemporaryDirectory(prefix="tallymark-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "ledger.db"
        with open_ledger(f"sqlite:///{file}", durable=False):
            pass  # closing it moves what is in the WAL into the file
        return file.read_bytes()


@contextmanager
def reading_ledger(url: str, opened: Ledger | None) -> Iterator[Ledger]:
    """The opened ledger, if any. Reading does not create a ledger where there is none."""
    address = parse_address(url)
    if opened is not None:
        yield opened
    elif address.is_sqlite and not address.file.exists():
        with temporary_ledger() as empty:
            yield empty
    else:
        with open_ledger(url) as ledger:
            yield ledger


def _make_folder(address: Address) -> None:
    folder = address.file.parent
    try:
        private_folder(folder)
        make_private_file(address.file)  # SQLite gives the files beside it the same mode
    except OSError as error:
        raise LedgerError(
            f"the folder of the ledger, {folder}, cannot be made: {error.strerror}",
            hint="let this user write there, or set `ledger:` in tallymark.yaml to another place",
            facts={"ledger": address.place},
        ) from error


class Ledger:
    """Safe to share between threads. Times come from the clock that `open_ledger` was given."""

    def __init__(self, database: Database):
        self._database = database

    def __repr__(self) -> str:
        return f"Ledger({self.place})"

    @property
    def place(self) -> str:
        """Without secrets."""
        return self._database.address.place

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    # Runs

    def start_run(
        self, project: str, command: str, *, host: str, pid: int, pipelines: Collection[str] = ()
    ) -> str:
        return self._database.write(lambda tx: runs.start(tx, project, command, host, pid, pipelines))

    def finish_run(self, run_id: str, state: RunState, outcomes: Mapping[str, Outcome | None]) -> None:
        """`state` is SUCCEEDED, FAILED or CANCELLED."""
        self._database.write(lambda tx: runs.finish(tx, run_id, state, outcomes))

    def runs(
        self,
        *,
        is_alive: ProcessProbe,
        limit: int = 20,
        before: str | None = None,
        pipeline: str | None = None,
        state: RunState | None = None,
    ) -> list[RunRecord]:
        """Newest first, without their batches; `before` is the id of the last run of the page before."""
        return self._database.read(lambda tx: runs.listed(tx, limit, before, pipeline, state, is_alive))

    def run_record(self, run_id: str, *, is_alive: ProcessProbe) -> RunRecord:
        """With its batches, oldest first. Raises LedgerError if there is no such run."""

        def with_batches(tx: Tx) -> RunRecord:
            return replace(runs.one(tx, run_id, is_alive), batches=tuple(reading.batches_of_run(tx, run_id)))

        return self._database.read(with_batches)

    # Contents

    def known_files(
        self, pipeline: str, paths: Collection[str] | None = None, *, table_key: str | None = None
    ) -> dict[str, SourceFile]:
        """The file that each of these paths, or of all, held when it was last registered. With `table_key`,
        only those registered for that table: after a pipeline got another table, everything is new again."""
        return self._database.read(lambda tx: reading.known_files(tx, pipeline, paths, table_key))

    def known_stats(self, pipeline: str, table_key: str, paths: Collection[str]) -> set[FileStat]:
        """Of `known_files`, what shows whether a file is still the same. Without those that failed: a
        repaired file, or one rewritten within the clock's resolution, may have kept its size and time."""
        return self._database.read(lambda tx: reading.known_stats(tx, pipeline, table_key, paths))

    def register(
        self,
        pipeline: str,
        table_key: str,
        contents: Sequence[Content],
        repeats: Repeats | None = None,
    ) -> Registration:
        """Of equal contents, the first in the given order is loaded; the others are duplicates of it. With
        `repeats`, a file can also bring back a content that the table had before."""
        return self._database.write(lambda tx: records.register(tx, pipeline, table_key, contents, repeats))

    def renamed_from(
        self, pipeline: str, table_key: str, files: Sequence[SourceFile]
    ) -> dict[str, tuple[str, ...]]:
        """Path → other paths at which a file of the same bytes and modification time is on record."""
        return self._database.read(lambda tx: renamed_from(tx, pipeline, table_key, files))

    def is_offered(self, pipeline: str, table_key: str, content: Content) -> bool:
        """Whether it is registered, and its source offered it when it was last asked."""
        return self._database.read(lambda tx: records.is_offered(tx, pipeline, table_key, content))

    def forget_vanished(self, pipeline: str, names: Collection[str]) -> None:
        """Contents that waited before the source was listed and are no longer in the listing. Their records
        do not wait again until their content is registered again."""
        if names:
            self._database.write(lambda tx: records.forget_vanished(tx, pipeline, names))

    def waiting_contents(self, pipeline: str, *, table_key: str | None = None) -> list[WaitingContent]:
        """PENDING and FAILED, in no particular order."""
        return self._database.read(lambda tx: records.waiting(tx, pipeline, table_key))

    def requeue(self, pipeline: str, paths: Collection[str] | None = None) -> int:
        """FAILED files wait again, with all their attempts; returns how many."""
        return self._database.write(lambda tx: records.requeue(tx, pipeline, paths))

    def committed_files(self, pipeline: str, *, table_key: str) -> list[SourceFile]:
        """Files that are loaded and, as far as is known, still at their paths."""
        return self._database.read(lambda tx: reading.committed_here(tx, pipeline, table_key))

    def mark_gone(self, pipeline: str, paths: Collection[str], *, table_key: str) -> None:
        """Records that loaded files were moved away."""
        self._database.write(lambda tx: records.mark_gone(tx, pipeline, table_key, paths))

    def batch_of_hashes(self, table_key: str, hashes: Collection[str]) -> dict[str, str]:
        """Content hash → id of the batch that committed it."""
        return self._database.read(lambda tx: records.committed_in(tx, table_key, hashes))

    # Leases

    def acquire_lease(
        self,
        table_key: str,
        holder: str,
        seconds: float,
        *,
        dead_holder: str | None = None,
    ) -> Lease:
        """Raises LeaseHeld, unless `dead_holder` holds it. The new fence is above every earlier one."""
        return self._database.write(lambda tx: leases.acquire(tx, table_key, holder, seconds, dead_holder))

    def renew_lease(self, lease: Lease, seconds: float) -> Lease:
        """Raises LeaseLost."""
        return self._database.write(lambda tx: leases.renew(tx, lease, seconds))

    def raise_fence(self, lease: Lease, *, above: int) -> Lease:
        """For a table whose loads have used higher fences: of a lost ledger, or of another one."""
        return self._database.write(lambda tx: leases.raise_fence(tx, lease, above))

    def release_lease(self, lease: Lease) -> None:
        self._database.write(lambda tx: leases.release(tx, lease))

    # Batches: every write raises LeaseLost when the lease's fence is no longer the table's

    def open_batches(self, table_key: str) -> list[Batch]:
        """PROCESSING, by sequence: what an earlier worker left open, or this one is at."""
        return self._database.read(lambda tx: batches.open_of(tx, table_key))

    def create_batch(
        self,
        lease: Lease,
        run_id: str,
        pipeline: str,
        contents: BatchContents,
        *,
        as_of: datetime,
        sequence_above: int = 0,
    ) -> Batch:
        """Raises FileChanged when a file was registered with another content in the meantime."""
        return self._database.write(
            lambda tx: batches.create(
                tx, lease, run_id, pipeline, contents, as_of=as_of, sequence_above=sequence_above
            )
        )

    def retry_batch(self, lease: Lease, batch_id: str, run_id: str) -> Batch:
        """The same batch, with its attempts counted one up."""
        return self._database.write(lambda tx: batches.retry(tx, lease, batch_id, run_id))

    def commit_batch(self, lease: Lease, batch_id: str, receipt: Receipt, fence: int | None = None) -> None:
        """`fence` is that of the attempt that committed, if it was not the last one."""
        self._database.write(lambda tx: batches.commit(tx, lease, batch_id, receipt, fence))

    def fail_batch(
        self, lease: Lease, batch_id: str, error: Failure, *, blamed: Collection[str] | None = None
    ) -> None:
        """Only when it is certain that nothing was written. Contents with `blamed` names become FAILED with
        one more attempt, the others PENDING as before; None blames all."""
        self._database.write(lambda tx: batches.fail(tx, lease, batch_id, error, blamed))

    def undo_batches(self, lease: Lease, *, above_sequence: int, error: Failure) -> list[Batch]:
        """Records that the table no longer holds these batches; their contents are PENDING again. Returns
        them by sequence."""
        return self._database.write(lambda tx: batches.undo(tx, lease, above_sequence, error))

    def adopt(
        self, pipeline: str, table_key: str, batch: Batch, receipt: Receipt, fence: int | None = None
    ) -> None:
        """Records what a marker proves: the batch, and those of its contents that are given."""
        self._database.write(lambda tx: batches.adopt(tx, pipeline, table_key, batch, receipt, fence))

    # Reading

    def pipeline_summary(self, pipeline: str) -> PipelineSummary:
        return self._database.read(lambda tx: reading.pipeline_summary(tx, pipeline))

    def history(self, pipeline: str | None = None, limit: int = 20) -> list[BatchRecord]:
        """Newest first."""
        return self._database.read(lambda tx: reading.history(tx, pipeline, limit))

    def committed_batches(self, table_key: str) -> list[BatchRecord]:
        """By sequence."""
        return self._database.read(lambda tx: reading.committed_batches(tx, table_key))

    def fates(self, pipeline: str, batch_ids: Collection[str]) -> dict[str, Fate]:
        """What became of these batches, by id; without those that the ledger does not know."""
        return self._database.read(lambda tx: reading.fates(tx, pipeline, batch_ids))

    def last_receipt(self, table_key: str) -> Receipt | None:
        """Of the committed batch with the highest sequence."""
        return self._database.read(lambda tx: reading.last_receipt(tx, table_key))

    def last_result(self, table_key: str) -> QueryResult | None:
        """The whole result of a transform that the table got last; those of windows do not count."""
        return self._database.read(lambda tx: reading.last_result(tx, table_key))

    def results(self, table_key: str, *, with_open: bool = False) -> list[QueryResult]:
        """What transforms made for the table, the newest first."""
        states = [BatchState.COMMITTED, *([BatchState.PROCESSING] if with_open else [])]
        return self._database.read(lambda tx: reading.results(tx, table_key, states))

    def last_sequence(self, table_key: str) -> int:
        """The highest of any batch that did not fail; 0 when there is none."""
        return self._database.read(lambda tx: batches.last_sequence(tx, table_key))

    def trial(self, table_key: str, work: Callable[[Ledger, Lease], T]) -> T:
        """Returns what `work` returns, and takes back everything that it writes. `work` gets the table's
        lease, whoever holds it, and must be short: other writers wait for it."""

        def attempt(tx: Tx) -> T:
            lease = leases.take_over(tx, table_key, "trial", seconds=60)
            return work(Ledger(OneTransaction(self._database.address, tx)), lease)

        return self._database.probe(attempt)

    def check(self) -> None:
        """For `doctor`: connects, looks at the schema, and writes a row that it takes back."""
        self._database.probe(_probe)


def _probe(tx: Tx) -> None:
    found = version(tx)
    if found != HEAD:
        raise LedgerError(
            f"the ledger has schema {found}, but this version of Tallymark needs {HEAD}",
            hint="open it again: run any command, such as `tallymark status`",
        )
    runs.start(tx, "doctor", "check", "", 0)
