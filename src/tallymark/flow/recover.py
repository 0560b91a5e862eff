"""`recover` brings the ledger in line with the markers; `quarantine replay` loads rejected rows again, once.

The content of a replay is the set of quarantined rows of one batch, so its hash, marker and ledger record
work like those of a file. Dying between the commit and the removal from the quarantine is harmless: the next
replay finds the content applied, and only removes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tallymark.config.pipeline_file import QuarantineConfig
from tallymark.errors import TallymarkError
from tallymark.flow.claim import Claim, claim_table
from tallymark.flow.discover import discover
from tallymark.flow.job import Job
from tallymark.flow.run import PipelineProgress, load_one
from tallymark.model.report import PipelineReport

# A replay takes the rows that are good now; the others go back to the quarantine under its own batch.
_NO_LIMITS = QuarantineConfig(max_fraction=1.0, max_rows=2**62)


def recover_pipeline(job: Job) -> PipelineReport:
    """Open batches are settled by their markers; contents that the table holds but the ledger does not
    know are recorded. What is not applied stays open or waiting, for the next `run`."""
    progress = PipelineProgress(job)
    try:
        progress.discovery = discover(job).report
        with claim_table(job) as claim:
            progress.recovered, progress.undone, progress.still_open = (
                claim.recovered,
                claim.undone,
                claim.retries,
            )
            claim.settle(give_up=False)
            progress.settle_markers()
    except TallymarkError as error:
        progress.failed(error)
    return progress.report()


def replay_pipeline(job: Job, batch_id: str | None) -> PipelineReport:
    job = replace(job, task=replace(job.task, limits=_NO_LIMITS))
    progress = PipelineProgress(job)
    try:
        with claim_table(job) as claim:
            progress.recovered, progress.undone = claim.recovered, claim.undone
            claim.settle()
            while retry := claim.next_retry():
                load_one(job, claim, progress, retry)
            for original in _quarantined_batches(job, batch_id):
                _replay_batch(job, claim, progress, original)
            progress.settle_markers()
    except TallymarkError as error:
        progress.failed(error)
    return progress.report()


def _replay_batch(job: Job, claim: Claim, progress: PipelineProgress, original: str) -> None:
    pipeline = job.task.pipeline
    content = job.quarantine.replay_content(pipeline, original)
    if content is None:
        return
    applied = job.ledger.batch_of_hashes(job.table_key, [content.content_hash])
    if applied or load_one(job, claim, progress, claim.create(content)):
        job.quarantine.remove(pipeline, original)


def _quarantined_batches(job: Job, batch_id: str | None) -> Sequence[str]:
    """Oldest first, so that a later row of a key still wins."""
    if batch_id is not None:
        return [batch_id]
    found = sorted(job.quarantine.summaries(job.task.pipeline), key=lambda summary: summary.quarantined_at)
    return [summary.batch_id for summary in found]
