"""The highest value of a pipeline's watermark column that its table has taken in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

WatermarkValue = str | int | float | Decimal | date | datetime

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FRACTIONAL = ("float", "double")


@dataclass(frozen=True)
class Watermark:
    """As markers and receipts keep it: its value in Spark's words (timestamps in UTC), and its Spark type."""

    text: str
    type: str

    @property
    def value(self) -> WatermarkValue:
        if self.type in _WHOLE:
            return int(self.text)
        if self.type in _FRACTIONAL:
            return float(self.text)
        if self.type.startswith("decimal"):
            return Decimal(self.text)
        match self.type:
            case "date":
                return date.fromisoformat(self.text)
            case "timestamp":
                return datetime.fromisoformat(self.text).replace(tzinfo=UTC)
            case "timestamp_ntz":
                return datetime.fromisoformat(self.text)
            case _:
                return self.text

    def as_dict(self) -> dict[str, str]:
        return {"text": self.text, "type": self.type}

    @classmethod
    def from_dict(cls, data: dict[str, str] | None) -> Watermark | None:
        return None if data is None else cls(data["text"], data["type"])
