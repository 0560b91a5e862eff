"""What is wrong in a file that the user wrote, as data: where, what, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches

from tallymark.errors import ConfigError
from tallymark.model.secrets import redact

KeyPath = tuple[str | int, ...]
PROBLEMS_IN_A_MESSAGE = 50


@dataclass(frozen=True)
class Problem:
    file: str  # relative to the project
    line: int  # 1-based; 0 when the file as a whole is meant
    column: int
    key: str  # such as source.files or columns[1].type; empty for the file as a whole
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{self.message}; {self.suggestion}" if self.suggestion else self.message
        return redact(": ".join(part for part in (place, self.key, text) if part))

    def as_dict(self) -> dict[str, object]:
        return {
            name: redact(value) if isinstance(value, str) else value for name, value in asdict(self).items()
        }


def config_error(problems: Iterable[Problem]) -> ConfigError:
    """All problems in one error, in the order in which a reader would meet them."""
    found = sorted(set(problems), key=lambda problem: (problem.file.count("/") > 0, *_place(problem)))
    lines = [str(problem) for problem in found[:PROBLEMS_IN_A_MESSAGE]]
    if len(found) > PROBLEMS_IN_A_MESSAGE:
        lines.append(f"… and {len(found) - PROBLEMS_IN_A_MESSAGE} more")
    return ConfigError(
        "\n".join(lines),
        hint="correct this, then run `tallymark validate`",
        facts={"problems": [problem.as_dict() for problem in found]},
    )


def _place(problem: Problem) -> tuple[str, int, int, str]:
    return problem.file, problem.line, problem.column, problem.key


def key_text(path: KeyPath) -> str:
    """`("columns", 1, "type")` as `columns[1].type`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """What was probably meant, without regard to case and to `-` for `_`."""
    by_folded = {_folded(candidate): candidate for candidate in candidates}
    found = get_close_matches(_folded(word), by_folded, n=1, cutoff=0.65)
    if not found and len(word) > 2:
        found = [name for name in by_folded if name.startswith(_folded(word))]
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    meant = closest(word, candidates)
    return f"did you mean {meant}?" if meant else ""


def listed(words: Sequence[str], last: str = "or") -> str:
    """`a, b or c`"""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def _folded(word: str) -> str:
    return word.casefold().replace("-", "_")
