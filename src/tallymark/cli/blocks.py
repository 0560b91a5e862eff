"""What a command returns: the same facts as a result for `--json` and as blocks of text for people."""

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
