"""From what the library returned to what the user sees. Pure functions: nothing here prints."""

from tallymark.cli.output.effective import settings
from tallymark.cli.output.findings import doctor, validate
from tallymark.cli.output.graphs import graph, lineage
from tallymark.cli.output.loads import recover, replay, run
from tallymark.cli.output.plans import plan
from tallymark.cli.output.previews import preview
from tallymark.cli.output.quarantined import dropped, quarantine_list, quarantine_show
from tallymark.cli.output.records import history, requeue, status
from tallymark.cli.output.started import init, prepare, schema, version

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
