"""What a load did or would do, in counts of actual rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from tallymark.model.batch import Batch, Watermark
from tallymark.model.gate import GateResult


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


FORMAT = 1


@dataclass(frozen=True)
class Marker:
    batch_id: str
    pipeline: str
    table_key: str
    sequence: int
    fence: int
    content_hashes: tuple[str, ...]
    as_of: datetime
    strategy: str
    counts: Counts
    unique_by: tuple[str, ...] = ()  # columns that this load leaves unique in the table
    watermark: Watermark | None = None  # after this load

    @classmethod
    def of(
        cls,
        batch: Batch,
        fence: int,
        strategy: str,
        counts: Counts,
        *,
        unique_by: tuple[str, ...] = (),
        watermark: Watermark | None = None,
    ) -> Marker:
        return cls(
            batch_id=batch.id,
            pipeline=batch.pipeline,
            table_key=batch.table_key,
            sequence=batch.sequence,
            fence=fence,
            content_hashes=batch.content_hashes,
            as_of=batch.as_of,
            strategy=strategy,
            counts=counts,
            unique_by=unique_by,
            watermark=watermark,
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "tallymark": FORMAT,
                "batch_id": self.batch_id,
                "pipeline": self.pipeline,
                "table_key": self.table_key,
                "sequence": self.sequence,
                "fence": self.fence,
                "content_hashes": list(self.content_hashes),
                "as_of": self.as_of.isoformat(),
                "strategy": self.strategy,
                "counts": self.counts.as_dict(),
                "unique_by": list(self.unique_by),
                "watermark": self.watermark.as_dict() if self.watermark else None,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | None) -> Marker | None:
        """None for a commit that is not ours: other writers use commit metadata too."""
        if not text or not text.startswith("{"):
            return None
        try:
            data: Any = json.loads(text)
        except ValueError:
            return None
        if not isinstance(data, dict) or data.get("tallymark") != FORMAT:
            return None
        return cls(
            batch_id=data["batch_id"],
            pipeline=data["pipeline"],
            table_key=data["table_key"],
            sequence=int(data["sequence"]),
            fence=int(data["fence"]),
            content_hashes=tuple(data["content_hashes"]),
            as_of=datetime.fromisoformat(data["as_of"]),
            strategy=data["strategy"],
            counts=Counts(**data["counts"]),
            unique_by=tuple(data.get("unique_by", ())),
            watermark=Watermark.from_dict(data.get("watermark")),
        )


@dataclass(frozen=True)
class Applied:
    """A marker as found in the destination, with the commit that carries it."""

    marker: Marker
    version: str
    committed_at: datetime
