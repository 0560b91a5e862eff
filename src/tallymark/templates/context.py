"""What goes into a template, what comes out of it, and what is wrong with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import total_ordering

from tallymark.config.problem import Problem, config_error
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy

Value = str | int | float | bool | Decimal | date | datetime


@dataclass(frozen=True)
class Template:
    file: str  # the name by which problems refer to it
    text: str


@dataclass(frozen=True)
class SqlText:
    """SQL made by Tallymark: a relation or a quoted name. It is printed as it is."""

    text: str

    def __str__(self) -> str:
        return self.text


@total_ordering
@dataclass(frozen=True, eq=False)
class TypedValue:
    """A value with the type of its column; in a template it compares like the value."""

    value: Value
    type: str = ""  # Spark SQL, such as bigint; empty: as the value is printed by itself

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, TypedValue) else other)

    def __lt__(self, other: object) -> bool:
        return bool(self.value < (other.value if isinstance(other, TypedValue) else other))  # type: ignore[operator]

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class Context:
    """What a template knows about the load for which it is rendered."""

    strategy: Strategy
    run_started_at: datetime
    refs: Callable[[str], str]  # from a pipeline's name to a relation in SQL
    zones: Callable[[str], str]  # from a landing zone's name to a relation in SQL
    this: str  # the pipeline's own table as a relation in SQL
    table_exists: bool = False
    watermark_column: str | None = None
    watermark: TypedValue | None = None  # the highest value of watermark_column in the table
    full_refresh: bool = False  # this load rebuilds the table, whatever the strategy
    window: bool = False  # this load repeats a range of rows, so it continues from nothing
    variables: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_incremental(self) -> bool:
        """Whether the load continues from something: from the watermark, or from the table if the pipeline
        declares no watermark_column. An empty first load leaves a table and no watermark."""
        if self.strategy is not Strategy.INCREMENTAL or self.full_refresh or self.window:
            return False
        return self.watermark is not None or (self.watermark_column is None and self.table_exists)

    def is_strategy(self, strategy: Strategy) -> bool:
        """True for at most one strategy: a requested full refresh counts as no other."""
        if strategy is Strategy.INCREMENTAL:
            return self.is_incremental
        if self.full_refresh:
            return strategy is Strategy.FULL_REFRESH
        return self.strategy is strategy


@dataclass(frozen=True)
class Piece:
    """The offset in the rendered query at which the output of one line of the template begins."""

    offset: int
    template_line: int


@dataclass(frozen=True)
class Rendered:
    sql: str  # one query, without a semicolon
    refs: tuple[str, ...] = ()  # the names that it asked for, in order, each once
    zones: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = field(default=(), repr=False)

    def template_line(self, line: int, column: int = 1) -> int:
        """The line of the template that printed this place of the query; all count from 1."""
        lines = self.sql.split("\n")
        line = max(1, min(line, len(lines)))
        return self.line_at(sum(len(text) + 1 for text in lines[: line - 1]) + max(0, column - 1))

    def line_at(self, offset: int) -> int:
        found = bisect_right(self.pieces, offset, key=lambda piece: piece.offset) - 1
        if found < 0:
            return 1
        piece = self.pieces[found]
        return piece.template_line + self.sql.count("\n", piece.offset, offset)


class TemplateFault(Exception):
    """What is wrong, raised by what a template calls. The renderer adds file and line."""

    def __init__(self, message: str, suggestion: str = ""):
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def template_error(file: str, line: int, message: str, suggestion: str = "") -> ConfigError:
    return config_error([Problem(file, line, 0, "", message, suggestion)])
