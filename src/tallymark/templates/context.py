"""What goes into a template, what comes out of it, and what is wrong with it."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import total_ordering

from tallymark.config.pipeline_folders import name_fault
from tallymark.config.yaml_file import Problem, closest, config_error
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


_ZONE_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ZONE_RULE = "use letters, digits, _, - and . in names of folders, with / between them"
MOST_LOOPS = 100_000  # that all ranges of a template may count, and all its loops, each in total
MOST_SECONDS = 10.0  # that a template may take
LOOPS = " loops"  # no template can write a name with a blank


class InputHelper(StrEnum):
    """The functions of a template that name an input."""

    REF = "ref"
    LANDING_ZONE = "landing_zone"


def constant_name(
    helper: InputHelper, arguments: Sequence[object], has_others: bool = False
) -> tuple[str, tuple[str, str] | None]:
    """The one constant name of a call, or what is wrong with it."""
    if len(arguments) != 1 or has_others:
        return "", (f"{helper} takes one name", f"write {helper}('…')")
    (name,) = arguments
    if not isinstance(name, str):
        hint = "the inputs of a pipeline must be known before it runs: put the if around the call"
        return "", (f"{helper} takes a name in quotes, not an expression", hint)
    fault = _fault_of(helper, name)
    return name, (fault, "") if fault else None


def _fault_of(helper: InputHelper, name: str) -> str:
    """Why this cannot be such a name; empty if it can."""
    match helper:
        case InputHelper.REF:
            fault = name_fault(name.split("."))
            return f"{name!r} cannot be the name of a pipeline: {fault}" if fault else ""
        case InputHelper.LANDING_ZONE:
            return "" if _is_zone(name) else f"{name!r} cannot be the name of a landing zone: {_ZONE_RULE}"


def _is_zone(name: str) -> bool:
    """A folder whose name begins with `_` or `.` is hidden, `_archive` among them."""
    return all(_ZONE_PART.fullmatch(part) and ".." not in part for part in name.split("/"))


QUESTIONS = {f"is_{strategy}": strategy for strategy in Strategy}
NAMES = frozenset(
    {*InputHelper, *QUESTIONS, "this", "table_exists", "run_started_at", "watermark_value", "var", "range"}
)
# What is not set before the first load, and how a template asks for it.
GUARDS = {
    "watermark_value": "there is none before the first load; guard it with {% if is_incremental() %}",
    "this": "the table does not exist before the first load; guard it with {% if table_exists %}",
}


@dataclass
class Loops:
    """How often all loops of one rendering have run. Loops in loops multiply, whatever they run over."""

    counted: int = 0
    started: float = field(default_factory=time.monotonic)

    def over(self, items: Iterable[object]) -> Iterator[object]:
        for item in items:
            self.counted += 1
            if self.counted > MOST_LOOPS:
                raise TemplateFault(
                    f"the loops of this template run more than {MOST_LOOPS} times in total", "loop in SQL"
                )
            if time.monotonic() - self.started > MOST_SECONDS:
                raise TemplateFault(f"the template takes more than {MOST_SECONDS:g} seconds", "loop in SQL")
            yield item


@dataclass
class Vocabulary:
    """Records which inputs the template asks for, and their relations. One for each rendering."""

    context: Context
    refs: dict[str, str] = field(default_factory=dict)  # each name is resolved once
    zones: dict[str, str] = field(default_factory=dict)
    counted: int = 0

    def names(self) -> dict[str, object]:
        context = self.context
        names: dict[str, object] = {
            InputHelper.REF.value: self.ref,
            InputHelper.LANDING_ZONE.value: self.landing_zone,
            "table_exists": context.table_exists,
            "run_started_at": context.run_started_at,
            "var": self.var,
            "range": self.range,
            LOOPS: Loops(),
        }
        if context.table_exists:
            names["this"] = SqlText(context.this)
        if context.watermark is not None:
            names["watermark_value"] = context.watermark
        return names | {name: self._question(strategy) for name, strategy in QUESTIONS.items()}

    def relations(self) -> list[str]:
        """Everything that the query may read."""
        own = [self.context.this] if self.context.table_exists else []
        return [*self.refs.values(), *self.zones.values(), *own]

    def ref(self, *names: object) -> SqlText:
        name = _checked(InputHelper.REF, names)
        if name not in self.refs:
            self.refs[name] = self.context.refs(name)
        return SqlText(self.refs[name])

    def landing_zone(self, *names: object) -> SqlText:
        name = _checked(InputHelper.LANDING_ZONE, names)
        if name not in self.zones:
            self.zones[name] = self.context.zones(name)
        return SqlText(self.zones[name])

    def var(self, *arguments: object) -> object:
        name, *default = arguments or (None,)
        if not isinstance(name, str) or len(default) > 1:
            raise TemplateFault(
                "var takes a name in quotes and an optional default", "write var('name', default)"
            )
        if name in self.context.variables:
            return self.context.variables[name]
        if default:
            return default[0]
        meant = closest(name, self.context.variables)
        hint = f"did you mean {meant}?" if meant else f"set it under vars, or write var('{name}', default)"
        raise TemplateFault(f"there is no variable {name}", hint)

    def range(self, *limits: int) -> range:
        numbers = range(*limits)
        try:
            self.counted += len(numbers)
        except OverflowError:
            self.counted = MOST_LOOPS + 1
        if self.counted > MOST_LOOPS:
            raise TemplateFault(
                f"the ranges of a template count to more than {MOST_LOOPS} in total", "count in SQL"
            )
        return numbers

    def _question(self, strategy: Strategy) -> Callable[..., bool]:
        def answer(*arguments: object) -> bool:
            if arguments:
                raise TemplateFault(f"is_{strategy} takes no arguments", f"write is_{strategy}()")
            return self.context.is_strategy(strategy)

        return answer


def _checked(helper: InputHelper, names: tuple[object, ...]) -> str:
    name, fault = constant_name(helper, names)
    if fault is not None:
        raise TemplateFault(*fault)
    return name


def unknown_name(name: str, others: Iterable[str] = ()) -> tuple[str, str]:
    """Message and suggestion for a name that templates do not have."""
    if name in GUARDS:
        return f"{name} is not set", GUARDS[name]
    meant = closest(name, [*NAMES, *others])
    return f"there is no {name} in templates", f"did you mean {meant}?" if meant else ""
