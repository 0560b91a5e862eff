"""Formats numbers, times, paths and values for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path

from tallymark.model.gate import GateResult
from tallymark.model.receipt import Counts

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
