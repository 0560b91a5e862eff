"""The options that every command takes, wherever they stand on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FLAGS = ("--json", "--verbose")
GROUPS = ("quarantine",)  # commands whose second word names the command


@dataclass(frozen=True)
class Options:
    project: Path = Path()
    json: bool = False
    verbose: bool = False


def hoist(argv: Sequence[str]) -> list[str]:
    """Move the common options before the command, where they are declared, so that
    `tallymark run --json` and `tallymark --json run` are the same."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in FLAGS or word.startswith("--project="):
            front.append(word)
        elif word == "--project":
            value = next(words, None)
            if value is None:  # alone, so that it does not swallow the command's name
                return [*front, word]
            front += [word, value]
        else:
            rest.append(word)
    return front + rest


def wants(flag: str, hoisted: Sequence[str]) -> bool:
    return flag in hoisted[: hoisted.index("--")] if "--" in hoisted else flag in hoisted


def command_name(hoisted: Sequence[str]) -> str | None:
    """For the JSON document, also when the arguments cannot be parsed."""
    words = iter(hoisted)
    names: list[str] = []
    for word in words:
        if word == "--project":
            next(words, None)
        elif not word.startswith("-"):
            names.append(word)
    if not names:
        return None
    return " ".join(names[: 2 if names[0] in GROUPS else 1])
