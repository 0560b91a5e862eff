"""What the ledger's tests are about: one pipeline, one table, a worker."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tallymark.ledger import Lease, Ledger
from tallymark.model.batch import Batch, BatchContents, Content, Files, SourceFile
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.report import Failure

PIPELINE = "silver.orders"
TABLE = "delta:/warehouse/silver/orders"
# Children are forked from a clean process that has imported everything once: a fresh interpreter each would
# take seconds, and a fork of the test process would copy Spark's threads half.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["pytest", "alembic.command", "alembic.autogenerate", "psycopg", "tallymark.ledger"]
)
BROKEN = Failure("TM201", "b.csv: cannot be read", "repair it", False, {"path": "b.csv"})


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, 10, 15, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def file(path: str, content: str | None = None, *, size: int = 10, modified_ns: int = 1) -> SourceFile:
    return SourceFile(path, size, modified_ns, f"hash of {path if content is None else content}")


def receipt(batch: Batch, committed_at: datetime | None = None) -> Receipt:
    return Receipt(
        batch_id=batch.id,
        pipeline=batch.pipeline,
        table="silver.orders",
        strategy="upsert",
        counts=Counts(inserted=2, updated=1, total=3),
        version="17",
        sequence=batch.sequence,
        committed_at=committed_at or datetime(2026, 11, 1, 10, 16, tzinfo=UTC),
        warnings=("a column was added",),
        way="merge",
        seconds=1.5,
        facts={"rows": 3},
    )


@dataclass
class Worker:
    ledger: Ledger
    clock: Clock
    lease: Lease
    run_id: str

    def register(self, *contents: Content) -> None:
        self.ledger.register(PIPELINE, TABLE, contents)

    def open(self, *files: SourceFile, sequence_above: int = 0) -> Batch:
        return self.open_contents(Files(files), sequence_above)

    def open_contents(self, contents: BatchContents, sequence_above: int = 0) -> Batch:
        return self.ledger.create_batch(
            self.lease, self.run_id, PIPELINE, contents, as_of=self.clock(), sequence_above=sequence_above
        )

    def commit(self, batch: Batch) -> None:
        self.ledger.commit_batch(self.lease, batch.id, receipt(batch))

    def load(self, *files: SourceFile) -> Batch:
        self.register(*files)
        batch = self.open(*files)
        self.commit(batch)
        return batch

    def fail(self, *files: SourceFile) -> Batch:
        self.register(*files)
        batch = self.open(*files)
        self.ledger.fail_batch(self.lease, batch.id, BROKEN)
        return batch

    @property
    def waiting(self) -> dict[str, tuple[str, str]]:
        """Name → state and content."""
        found = self.ledger.waiting_contents(PIPELINE)
        return {
            w.content.name: (str(w.state), w.content.content_hash.removeprefix("hash of ")) for w in found
        }

    @property
    def counts(self) -> dict[str, int]:
        return self.ledger.pipeline_summary(PIPELINE).files
