"""Writes blocks to a stream: colors and tables on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, assert_never

from tallymark.model.gate import GateResult
from tallymark.model.receipt import Counts

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tallymark.model.report import Failure


ALL_GOOD = 0
LOAD_FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130


class Tone(StrEnum):
    PLAIN = "plain"
    HEADING = "heading"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    DIM = "dim"


@dataclass(frozen=True)
class Line:
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Grid:
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()  # headers of the right-aligned columns


@dataclass(frozen=True)
class Code:
    text: str
    language: str


Block = Line | Grid | Code


@dataclass(frozen=True)
class Answer:
    result: object = None
    blocks: tuple[Block, ...] = ()
    failure: Failure | None = None
    exit_code: int = ALL_GOOD
    on_stderr: bool = False  # true for a refusal, which must not end up in a file of results

    @property
    def ok(self) -> bool:
        return self.exit_code == ALL_GOOD


STYLES = {
    Tone.PLAIN: "",
    Tone.HEADING: "bold",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.DIM: "dim",
}
NARROWEST_TEXT = 12
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_terminal(stream: TextIO) -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def clean(text: str) -> str:
    """Hides secrets and escapes control characters: a value from a file must not control the terminal."""
    from tallymark.model.section import redact

    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", redact(text))


def show(blocks: Iterable[Block], stream: TextIO) -> None:
    if is_terminal(stream):
        _show_rich(blocks, stream)
    else:
        for block in blocks:
            stream.write(_plain(block))
    stream.flush()


def _plain(block: Block) -> str:
    match block:
        case Line(text):
            return clean(text) + "\n"
        case Grid():
            return _plain_grid(block)
        case Code(text):
            return clean(text) + "\n"
        case _:
            assert_never(block)


def _plain_grid(grid: Grid) -> str:
    widths = _widths(grid)
    lines = []
    for row in (grid.headers, *grid.rows):
        cells = [
            _cell(value).rjust(widths[header])
            if header in grid.numbers
            else _cell(value).ljust(widths[header])
            for header, value in zip(grid.headers, row, strict=True)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _widths(grid: Grid) -> dict[str, int]:
    columns = zip(grid.headers, *grid.rows, strict=True)
    return {column[0]: max(len(_cell(value)) for value in column) for column in columns}


def _cell(value: str) -> str:
    return clean(value).replace("\n", " ")


def _show_rich(blocks: Iterable[Block], stream: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for block in blocks:
        match block:
            case Line(text, tone):
                console.print(Text(clean(text), style=STYLES[tone]))
            case Grid():
                console.print(_rich_table(block, console.width))
            case Code(text, language):
                _print_code(console, clean(text), language)
            case _:
                assert_never(block)


def _rich_table(grid: Grid, width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    whole = _columns_kept_whole(grid, width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for header in grid.headers:
        justify: Literal["left", "right"] = "right" if header in grid.numbers else "left"
        table.add_column(header, justify=justify, no_wrap=header in whole, overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def _columns_kept_whole(grid: Grid, width: int) -> frozenset[str]:
    """A wrapped name or number is hard to read and to copy, but better than one that is cut off: on a narrow
    terminal every column may wrap."""
    widths = _widths(grid)
    whole = grid.numbers | {grid.headers[0]}
    needed = sum(widths[h] if h in whole else min(widths[h], NARROWEST_TEXT) for h in grid.headers)
    return whole if needed + 2 * len(grid.headers) <= width else frozenset()


def _print_code(console: Console, text: str, language: str) -> None:
    from rich.syntax import Syntax

    console.print(Syntax(text, language, background_color="default", word_wrap=True))


LONGEST_VALUE = 60
LONGEST_GATE = 300
MOST_NAMES = 5
LABELS = ("inserted", "updated", "closed", "deleted", "unchanged", "skipped", "rejected")


def number(value: int) -> str:
    return f"{value:,}"


def plural(count: int, noun: str) -> str:
    ending = "es" if noun.endswith("ch") else "s"
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}{ending}"


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def when(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if moment else "-"


def path(text: str) -> str:
    """Relative to the current folder if it is below it."""
    local = Path(text.removeprefix("file://"))
    here = Path.cwd()
    return str(local.relative_to(here)) if local.is_relative_to(here) else text


def names(items: Collection[str], most: int = MOST_NAMES) -> str:
    shown = ", ".join(path(item) for item in list(items)[:most])
    return shown if len(items) <= most else f"{shown} and {number(len(items) - most)} more"


def value(content: object, longest: int = LONGEST_VALUE) -> str:
    text = "null" if content is None else str(content).replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= longest else text[: longest - 1] + "…"


def rules_passed(results: Collection[GateResult]) -> str:
    passed = sum(result.passed for result in results)
    return f"{number(passed)} of {number(len(results))} rules passed"


def gate(result: GateResult) -> str:
    """On one line, whatever the samples contain."""
    return value(str(result), LONGEST_GATE)


def counts_in_words(counts: Counts, labels: Iterable[str] = LABELS) -> str:
    parts = [f"{number(n)} {label}" for label, n in counts.as_dict().items() if label in labels and n]
    return ", ".join(parts) or "no rows change"
