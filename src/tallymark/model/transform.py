"""Which rows a transform is asked for, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

WatermarkValue = str | int | float | Decimal | date | datetime

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FRACTIONAL = ("float", "double")


@dataclass(frozen=True)
class Rerun:
    """What `--full-refresh`, `--since` and `--until` ask of transforms, beside what is new."""

    full_refresh: bool = False  # compute all rows again, as though the table were empty, and replace it
    since: str | None = None  # only rows from here on; a text, because only the result has the column's type
    until: str | None = None  # only rows before this

    @property
    def is_windowed(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def is_requested(self) -> bool:
        return self.full_refresh or self.is_windowed


ONLY_NEW = Rerun()  # nothing is computed again


@dataclass(frozen=True)
class Window:
    """Rows whose `column` is in [since, until)."""

    column: str
    since: str | None
    until: str | None


@dataclass(frozen=True)
class Watermark:
    """The highest value of a pipeline's watermark column that has been loaded into its table. Markers and
    receipts keep it as Spark prints it (timestamps in UTC), with its Spark type."""

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
