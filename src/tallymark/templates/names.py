"""Names that a transform may ask for. They become paths and relations, so they are strict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from tallymark.config.pipelines import name_fault

_ZONE_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Asked(StrEnum):
    """The helpers that name an input."""

    REF = "ref"
    LANDING_ZONE = "landing_zone"


def constant_name(
    asked: Asked, arguments: Sequence[object], has_others: bool = False
) -> tuple[str, tuple[str, str] | None]:
    """The one constant name of a call, or what is wrong with it."""
    if len(arguments) != 1 or has_others:
        return "", (f"{asked} takes one name", f"write {asked}('…')")
    (name,) = arguments
    if not isinstance(name, str):
        hint = "what a pipeline reads must be known before anything runs: branch with if around it"
        return "", (f"{asked} takes a name in quotes, not an expression", hint)
    fault = _fault_of(asked, name)
    return name, (fault, "") if fault else None


def _fault_of(asked: Asked, name: str) -> str:
    """Why it cannot be such a name; empty when it can."""
    match asked:
        case Asked.REF:
            fault = name_fault(name.split("."))
            return f"{name!r} cannot be the name of a pipeline: {fault}" if fault else ""
        case Asked.LANDING_ZONE:
            return "" if _is_zone(name) else f"{name!r} cannot be the name of a landing zone: {_ZONE_RULE}"


_ZONE_RULE = "use letters, digits, _, - and . in names of folders, with / between them"


def _is_zone(name: str) -> bool:
    """A folder whose name begins with `_` or `.` is hidden, `_archive` among them."""
    return all(_ZONE_PART.fullmatch(part) and ".." not in part for part in name.split("/"))
