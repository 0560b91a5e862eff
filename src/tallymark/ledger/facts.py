"""What the ledger hands out, beside the types of `tallymark.model`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tallymark.model.gate import GateResult
from tallymark.model.receipt import Receipt
from tallymark.model.report import FailedFile, Failure


class RunState(StrEnum):
    RUNNING = "RUNNING"  # or killed: a run cannot record its own death
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class PipelineSummary:
    files: dict[str, int]  # state → number of files
    batches: int  # committed
    last_receipt: Receipt | None
    last_error: Failure | None  # only when newer than the last commit
    failed_files: tuple[FailedFile, ...]
    quality: tuple[GateResult, ...] = ()  # of the last batch that had gates
