"""Tallymark loads files and query results into lakehouse tables, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallymark.errors import TallymarkError as TallymarkError
    from tallymark.library import merge as merge
    from tallymark.library import plan as plan
    from tallymark.model.receipt import Counts as Counts
    from tallymark.model.receipt import Receipt as Receipt
    from tallymark.model.report import Cancellation as Cancellation
    from tallymark.project import Project as Project

__version__ = "0.1.0"

_HOMES = {
    "Project": "tallymark.project",
    "merge": "tallymark.library",
    "plan": "tallymark.library",
    "TallymarkError": "tallymark.errors",
    "Cancellation": "tallymark.model.report",
    "Counts": "tallymark.model.receipt",
    "Receipt": "tallymark.model.receipt",
}
__all__ = ["Cancellation", "Counts", "Project", "Receipt", "TallymarkError", "merge", "plan"]


def __getattr__(name: str) -> object:
    """On first use: importing Spark takes a second that `tallymark --help` must not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tallymark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
