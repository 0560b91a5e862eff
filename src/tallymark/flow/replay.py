"""Rows that come back from the quarantine go through the same pipeline, once.

The content of a replay is the set of quarantined rows of one batch, so its hash, marker and ledger record
work like those of a file. Dying between the commit and the removal from the quarantine is harmless: the
next replay finds the content applied, and only removes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tallymark.config.pipeline_file import QuarantineConfig
from tallymark.errors import TallymarkError
from tallymark.flow.claim import Claim, claim_table
from tallymark.flow.job import Job
from tallymark.flow.run import Tally, load_one
from tallymark.model.report import PipelineReport

# A replay takes the rows that are good now; the others go back to the quarantine under its own batch.
_NO_LIMITS = QuarantineConfig(max_fraction=1.0, max_rows=2**62)


def replay_pipeline(job: Job, batch_id: str | None) -> PipelineReport:
    job = replace(job, task=replace(job.task, limits=_NO_LIMITS))
    tally = Tally(job)
    try:
        with claim_table(job) as claim:
            tally.recovered = claim.recovered
            claim.settle()
            while retry := claim.next_retry():
                load_one(job, claim, tally, retry)
            for original in _quarantined_batches(job, batch_id):
                _replay_batch(job, claim, tally, original)
            tally.settle_markers()
    except TallymarkError as error:
        tally.failed(error)
    return tally.report()


def _replay_batch(job: Job, claim: Claim, tally: Tally, original: str) -> None:
    pipeline = job.task.pipeline
    content = job.quarantine.replay_content(pipeline, original)
    if content is None:
        return
    applied = job.ledger.batch_of_hashes(job.table_key, [content.content_hash])
    if applied or load_one(job, claim, tally, claim.create(content)):
        job.quarantine.remove(pipeline, original)


def _quarantined_batches(job: Job, batch_id: str | None) -> Sequence[str]:
    """Oldest first, so that a later row of a key still wins."""
    if batch_id is not None:
        return [batch_id]
    found = sorted(job.quarantine.summaries(job.task.pipeline), key=lambda summary: summary.quarantined_at)
    return [summary.batch_id for summary in found]
