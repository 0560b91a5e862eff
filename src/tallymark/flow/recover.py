"""Brings the ledger in line with the markers, without loading anything."""

from __future__ import annotations

from tallymark.errors import TallymarkError
from tallymark.flow.claim import claim_table
from tallymark.flow.discover import discover
from tallymark.flow.job import Job
from tallymark.flow.run import Tally
from tallymark.model.report import PipelineReport


def recover_pipeline(job: Job) -> PipelineReport:
    """Open batches are settled by their markers; contents that the table holds but the ledger does not
    know are recorded. What is not applied stays open or waiting, for the next `run`."""
    tally = Tally(job)
    try:
        tally.discovery = discover(job).report
        with claim_table(job) as claim:
            tally.recovered, tally.undone, tally.still_open = claim.recovered, claim.undone, claim.retries
            claim.settle(give_up=False)
            tally.settle_markers()
    except TallymarkError as error:
        tally.failed(error)
    return tally.report()
