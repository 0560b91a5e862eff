"""The quarantine of the model: bad rows are words, kept in memory under the attempt that found them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallymark.model.batch import Attempt, Batch
from tallymark.model.report import QuarantineSummary

Gate = Callable[[str, Callable[[], Any]], Any]
REPLAYED = "replayed"  # key of the row that a replay brings


@dataclass(frozen=True)
class MemoryBadRow:
    attempt: Attempt
    content: str  # hash of the file that it came from
    word: str


@dataclass
class MemoryQuarantine:
    """What one worker sees of the quarantine of a pipeline; `kept` is shared by all."""

    kept: list[MemoryBadRow]
    gate: Gate

    def write(self, batch: Batch, fence: int, checked: Any) -> None:
        attempt = Attempt(batch.id, fence)

        def replace_own() -> None:
            self.kept[:] = [row for row in self.kept if row.attempt != attempt]
            self.kept += [MemoryBadRow(attempt, content, word) for content, word in checked.bad]

        self.gate("quarantine", replace_own)

    def attempts(self, pipeline: str) -> set[Attempt]:
        return {row.attempt for row in self.kept}

    def summaries(self, pipeline: str, attempts: Collection[Attempt]) -> list[QuarantineSummary]:
        rows = Counter(row.attempt.batch_id for row in self.kept if row.attempt in attempts)
        return [QuarantineSummary(pipeline, name, rows[name], 1, {}, datetime.min) for name in sorted(rows)]

    def remove(self, pipeline: str, attempts: Collection[Attempt]) -> int:
        before = len(self.kept)
        self.kept[:] = [row for row in self.kept if row.attempt not in attempts]
        return before - len(self.kept)
