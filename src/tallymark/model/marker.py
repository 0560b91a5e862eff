"""The proof, kept in the destination and committed with the data, that contents were applied."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallymark.model.batch import Batch
from tallymark.model.receipt import Counts
from tallymark.model.transform import Watermark

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
