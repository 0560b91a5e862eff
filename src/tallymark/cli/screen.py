"""Blocks on a stream: colours and tables on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO, assert_never

from tallymark.cli.blocks import Block, Code, Grid, Line, Tone

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {
    Tone.PLAIN: "",
    Tone.HEADING: "bold",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.DIM: "dim",
}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_terminal(stream: TextIO) -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def clean(text: str) -> str:
    """Without secrets, and without control characters: a value from a file must not steer a terminal."""
    from tallymark.config.secrets import redact

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
    rows = [grid.headers, *(tuple(_cell(value) for value in row) for row in grid.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(grid.headers))]
    lines = []
    for row in rows:
        cells = [
            value.rjust(width) if header in grid.numbers else value.ljust(width)
            for header, value, width in zip(grid.headers, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


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
                console.print(_rich_table(block))
            case Code(text, language):
                _print_code(console, clean(text), language)
            case _:
                assert_never(block)


def _rich_table(grid: Grid) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for header in grid.headers:
        table.add_column(header, justify="right" if header in grid.numbers else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def _print_code(console: Console, text: str, language: str) -> None:
    from rich.syntax import Syntax

    console.print(Syntax(text, language, background_color="default", word_wrap=True))
