"""How the effect of a plan gets into a table of a database, in words: statements of one transaction."""

from __future__ import annotations

from tallymark.destinations.contract import Way
from tallymark.model.plan import Append, Merge, Plan, ReplaceSlices, ReplaceTable
from tallymark.model.receipt import Counts

APPEND = Way("append", "every row is added")
OVERWRITE = Way("overwrite", "the whole table is replaced")
REPLACE = Way("replace", "whole slices of the table are replaced")
SKIP = Way("skip", "no row changes, so only the marker is written")
MERGE = Way("merge", "rows are deleted, updated and inserted by their labels")


def choose_way(plan: Plan, counts: Counts) -> Way:
    match plan.shape:
        case Append():
            return APPEND
        case ReplaceTable() | Merge(anew=True):
            return OVERWRITE
        case ReplaceSlices():
            return REPLACE
        case Merge():
            return SKIP if counts.changes == 0 else MERGE
