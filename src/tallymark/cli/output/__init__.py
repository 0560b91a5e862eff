"""Turns the reports of the library into answers. Pure functions: nothing here prints."""

from tallymark.cli.output.loads import recover, replay, run
from tallymark.cli.output.overview import (
    doctor,
    graph,
    init,
    lineage,
    prepare,
    schema,
    settings,
    validate,
    version,
)
from tallymark.cli.output.plans import plan, preview
from tallymark.cli.output.records import (
    dropped,
    history,
    quarantine_list,
    quarantine_show,
    requeue,
    status,
)

__all__ = [
    "doctor",
    "dropped",
    "graph",
    "history",
    "init",
    "lineage",
    "plan",
    "prepare",
    "preview",
    "quarantine_list",
    "quarantine_show",
    "recover",
    "replay",
    "requeue",
    "run",
    "schema",
    "settings",
    "status",
    "validate",
    "version",
]
