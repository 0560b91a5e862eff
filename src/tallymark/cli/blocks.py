"""What a command gives back: the same facts as data for `--json` and as blocks for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    numbers: frozenset[str] = frozenset()  # headers of the columns that are right-aligned


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
    on_stderr: bool = False  # a refusal is no result: it must not end up in a file of results

    @property
    def ok(self) -> bool:
        return self.exit_code == ALL_GOOD
