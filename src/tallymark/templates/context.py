"""What goes into a template and what comes out of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from tallymark.model.settings import Strategy

Value = str | int | float | bool | Decimal | date | datetime


@dataclass(frozen=True)
class Template:
    file: str  # how problems call it
    text: str


@dataclass(frozen=True)
class Watermark:
    """The highest value of the watermark column that the table has taken in."""

    value: Value
    type: str = ""  # the column's Spark SQL type, such as bigint; empty: what the value is by itself


@dataclass(frozen=True)
class Context:
    """What a template may know about the load it is rendered for."""

    strategy: Strategy
    run_started_at: datetime
    refs: Callable[[str], str]  # a pipeline's name to a relation in SQL
    zones: Callable[[str], str]  # a landing zone's name to a relation in SQL
    this: str  # the pipeline's own table as a relation in SQL
    table_exists: bool = False
    watermark_column: str | None = None
    watermark: Watermark | None = None
    full_refresh: bool = False  # asked for once, whatever the strategy
    window: bool = False  # a part of the rows is asked for again, so that there is nothing to go on from
    variables: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_incremental(self) -> bool:
        """Whether there is something to go on from: the watermark, or, where the pipeline declares no
        watermark_column, the table. An empty first load leaves a table and no watermark."""
        if self.strategy is not Strategy.INCREMENTAL or self.full_refresh or self.window:
            return False
        return self.watermark is not None or (self.watermark_column is None and self.table_exists)

    def is_strategy(self, strategy: Strategy) -> bool:
        """At most one is true: a full refresh that was asked for is no other strategy."""
        if strategy is Strategy.INCREMENTAL:
            return self.is_incremental
        if self.full_refresh:
            return strategy is Strategy.FULL_REFRESH
        return self.strategy is strategy


@dataclass(frozen=True)
class Piece:
    """Where in the rendered query something begins that came from one place in the template."""

    offset: int
    template_line: int


@dataclass(frozen=True)
class Rendered:
    sql: str  # one query, without a semicolon
    refs: tuple[str, ...] = ()  # the names asked for, in order, each once
    zones: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = field(default=(), repr=False)

    def template_line(self, line: int, column: int = 1) -> int:
        """The line of the template that gave this place (counted from 1) of the query."""
        lines = self.sql.split("\n")
        line = max(1, min(line, len(lines)))
        return self.line_at(sum(len(text) + 1 for text in lines[: line - 1]) + max(0, column - 1))

    def line_at(self, offset: int) -> int:
        found = bisect_right(self.pieces, offset, key=lambda piece: piece.offset) - 1
        if found < 0:
            return 1
        piece = self.pieces[found]
        return piece.template_line + self.sql.count("\n", piece.offset, offset)
