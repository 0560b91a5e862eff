"""Between what the keys of a batch lie: read off by the way, while its rows are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from tallymark.model.plan import KeyRange
from tallymark.model.sql_text import literal, quoted
from tallymark.model.table import Column, find_column

_LONGEST_TEXT = 200
_LARGEST = (1 << 63) - 1
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class _Kind:
    """Days and moments are told as numbers: Python knows fewer of them than Spark, and has time zones of its
    own."""

    told: str  # of a value
    literal: Callable[[Any], str]


_KINDS = {
    **dict.fromkeys(_WHOLE_NUMBERS, _Kind("{}", lambda number: f"{number}L")),
    "date": _Kind("unix_date({})", lambda days: f"date_from_unix_date({days})"),
    "timestamp": _Kind("unix_micros({})", lambda micros: f"timestamp_micros({micros})"),
    "string": _Kind("{}", literal),
}


@dataclass(frozen=True)
class KeySpread:
    """Of those key columns whose order Spark, Delta and Python see alike."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, keys: Iterable[str], columns: Sequence[Column]) -> KeySpread:
        found = (find_column(columns, key) for key in keys)
        return cls(tuple(column for column in found if column is not None and column.type in _KINDS))

    def aggregates(self) -> list[str]:
        told = [_KINDS[column.type].told for column in self.columns]
        names = [quoted(column.name) for column in self.columns]
        return [
            f"{text.format(f'{function}({name})')} AS _tm_{function}_{at}"
            for at, (text, name) in enumerate(zip(told, names, strict=True))
            for function in ("min", "max")
        ]

    def ranges(self, groups: Sequence[Row]) -> tuple[KeyRange, ...]:
        found = []
        for at, column in enumerate(self.columns):
            lows = [row[f"_tm_min_{at}"] for row in groups if row[f"_tm_min_{at}"] is not None]
            highs = [row[f"_tm_max_{at}"] for row in groups if row[f"_tm_max_{at}"] is not None]
            if not lows or len(str(min(lows))) + len(str(max(highs))) > _LONGEST_TEXT:
                continue
            low, high = min(lows), max(highs)
            if column.type in _WHOLE_NUMBERS:
                low, high = _rounded(low, high)
            as_literal = _KINDS[column.type].literal
            found.append(KeyRange(column.name, as_literal(low), as_literal(high)))
        return tuple(found)


def _rounded(low: int, high: int) -> tuple[int, int]:
    """Wider by at most an eighth on each side. Spark writes numbers into the code that it compiles for a
    query: with the exact ends, every load would compile it again."""
    step = 1 << max(0, (high - low).bit_length() - 4)
    return low // step * step, min(-(-high // step) * step, _LARGEST)
