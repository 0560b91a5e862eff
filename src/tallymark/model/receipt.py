"""What a load did or would do, in counts of actual rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from tallymark.model.gate import GateResult
from tallymark.model.transform import Watermark


@dataclass(frozen=True)
class Counts:
    """`total` is the number of rows read. The other counts say what happened to them and to the table:

    - `inserted` rows are added to the table and `deleted` rows are removed from it, so that
      rows after = rows before + inserted - deleted
    - `updated` rows of the table are replaced by rows of the batch
    - `closed` versions of a history get a new end
    - `unchanged` rows of the batch are already in the table
    - `skipped` rows of the batch have no effect: a later row has the same key, the table's row is newer, or
      the strategy does not add or replace keys
    - `rejected` rows go to the quarantine
    """

    inserted: int = 0
    updated: int = 0
    closed: int = 0
    deleted: int = 0
    unchanged: int = 0
    skipped: int = 0
    rejected: int = 0
    total: int = 0

    @property
    def changes(self) -> int:
        return self.inserted + self.updated + self.closed + self.deleted

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Receipt:
    """What one commit did. `already_applied` means that `batch_id` had applied the content before: this call
    changed nothing, so its counts are zero."""

    batch_id: str
    pipeline: str
    table: str
    strategy: str
    counts: Counts
    version: str  # the destination's name for the commit
    sequence: int
    committed_at: datetime
    already_applied: bool = False
    warnings: tuple[str, ...] = ()
    way: str = ""  # how the destination wrote it: append, overwrite, replace, merge, skip, view
    seconds: float = 0.0
    watermark: Watermark | None = None  # of a transform, after this load
    facts: dict[str, object] = field(default_factory=dict)
    quality: tuple[GateResult, ...] = ()  # empty if the commit is known from its marker only

    @property
    def inserted(self) -> int:
        return self.counts.inserted

    @property
    def updated(self) -> int:
        return self.counts.updated

    @property
    def closed(self) -> int:
        return self.counts.closed

    @property
    def deleted(self) -> int:
        return self.counts.deleted

    @property
    def unchanged(self) -> int:
        return self.counts.unchanged

    @property
    def rejected(self) -> int:
        return self.counts.rejected

    @property
    def skipped(self) -> int:
        return self.counts.skipped

    @property
    def total(self) -> int:
        return self.counts.total

    def as_dict(self) -> dict[str, object]:
        return {
            "batch_id": self.batch_id,
            "pipeline": self.pipeline,
            "table": self.table,
            "strategy": self.strategy,
            "counts": self.counts.as_dict(),
            "version": self.version,
            "sequence": self.sequence,
            "committed_at": self.committed_at.isoformat(),
            "already_applied": self.already_applied,
            "warnings": list(self.warnings),
            "way": self.way,
            "seconds": round(self.seconds, 3),
            "watermark": self.watermark.as_dict() if self.watermark else None,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Receipt:
        """The inverse of `as_dict`. `facts` and `quality` are optional."""
        return cls(
            **{
                **data,
                "counts": Counts(**data["counts"]),
                "committed_at": datetime.fromisoformat(data["committed_at"]),
                "warnings": tuple(data["warnings"]),
                "watermark": Watermark.from_dict(data.get("watermark")),
            }
        )
