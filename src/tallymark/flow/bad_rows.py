"""Which rows of the quarantine count: those of batches that the ledger has as committed, until a replay of
them is committed.

Bad rows are written before their batch is committed, and never moved afterwards. Whether they are listed,
shown, exported, replayed or dropped is decided here, when they are read, by what the ledger says of the
attempt that wrote them. So rows of a batch that failed, that is open, or that the table no longer holds do
not count, and they count again if it turns out that the batch was committed after all. What has not counted
for a month is removed whenever a replay or a drop has the quarantine open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from tallymark.checks.quarantine_files import NeedsSpark, QuarantineFiles, QuarantineReader
from tallymark.ledger.ledger import Ledger
from tallymark.model.batch import Attempt
from tallymark.model.report import QuarantinedRow, QuarantineSummary

Found = TypeVar("Found")

KEPT_UNSEEN = timedelta(days=30)  # a table may be restored, and a late worker may wake up


@dataclass(frozen=True)
class Judged:
    """The attempts that have rows in a pipeline's quarantine."""

    shown: frozenset[Attempt]
    dead: frozenset[Attempt]  # they have not counted for a month
    unknown: frozenset[Attempt]  # of batches that are not in the ledger: a lost one, or another project's

    def of_batch(self, batch_id: str) -> frozenset[Attempt]:
        return frozenset(attempt for attempt in self.shown if attempt.batch_id == batch_id)


def judge(
    ledger: Ledger, pipeline: str, attempts: Collection[Attempt], now: datetime | None = None
) -> Judged:
    fates = ledger.fates(pipeline, {attempt.batch_id for attempt in attempts})
    shown, dead, unknown = set(), set(), set()
    for attempt in attempts:
        fate = fates.get(attempt.batch_id)
        if fate is None:
            unknown.add(attempt)
        elif fate.shows(attempt):
            shown.add(attempt)
        elif now is not None and fate.settled_at is not None and now - fate.settled_at > KEPT_UNSEEN:
            dead.add(attempt)
    return Judged(frozenset(shown), frozenset(dead), frozenset(unknown))


@dataclass(frozen=True)
class BadRows:
    """What a project shows of its quarantine."""

    ledger: Ledger
    reader: QuarantineReader
    on_unknown: Callable[[str, int], None] = lambda pipeline, batches: None

    def summaries(self, pipeline: str | None) -> list[QuarantineSummary]:
        """One per batch, of one pipeline or of all."""
        names = self.reader.pipelines() if pipeline is None else [pipeline]
        return [summary for name in names for summary in self.reader.summaries(name, self._shown(name))]

    def rows(self, pipeline: str, batch_id: str | None = None, *, limit: int = 100) -> list[QuarantinedRow]:
        return self.reader.rows(pipeline, self._shown(pipeline, batch_id), limit=limit)

    def _shown(self, pipeline: str, batch_id: str | None = None) -> frozenset[Attempt]:
        judged = judge(self.ledger, pipeline, self.reader.attempts(pipeline))
        if judged.unknown:
            self.on_unknown(pipeline, len({attempt.batch_id for attempt in judged.unknown}))
        return judged.shown if batch_id is None else judged.of_batch(batch_id)


def read_quarantine(
    roots: Collection[str],
    *,
    here: bool,
    spark_reader: Callable[[], QuarantineReader],
    read: Callable[[QuarantineReader], Found],
    on_spark: Callable[[str], None] = lambda reason: None,
) -> Found:
    """Without Spark where the files are on this machine (`here`) and simple enough."""
    try:
        if not here:
            raise NeedsSpark(f"{next(iter(roots))} is a path of another machine or store")
        return read(QuarantineFiles(*roots))
    except NeedsSpark as reason:
        on_spark(str(reason))
        return read(spark_reader())
