"""`recover` brings the ledger in line with the markers; `quarantine replay` loads rejected rows again, once.

The content of a replay is what is in the quarantine of one batch, so its hash, marker and ledger record work
like those of a file. Its rows stay where they are: they no longer count once the ledger has the replay as
committed, and count again if the table is restored to a state before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tallymark.config.pipeline_file import QuarantineConfig
from tallymark.destinations.contract import TableMarkers
from tallymark.errors import TallymarkError
from tallymark.flow.bad_rows import judge, read_quarantine
from tallymark.flow.claim import Claim, claim_table, receipt_from_marker
from tallymark.flow.discover import discover
from tallymark.flow.job import Job
from tallymark.flow.run import PipelineProgress, load_one
from tallymark.model.batch import Attempt, Batch, BatchContents, Files, QuarantinedRows
from tallymark.model.receipt import Applied
from tallymark.model.report import PipelineReport

# A replay takes the rows that are good now; the others go back to the quarantine under its own batch.
_NO_LIMITS = QuarantineConfig(max_fraction=1.0, max_rows=2**62)


def recover_pipeline(job: Job) -> PipelineReport:
    """Open batches are settled by their markers; contents that the table holds but the ledger does not
    know are recorded, and so are batches that have bad rows. What is not applied stays open or waiting, for
    the next `run`."""
    progress = PipelineProgress(job)
    try:
        progress.discovered(discover(job))
        with claim_table(job) as claim:
            progress.recovered, progress.undone, progress.still_open = (
                claim.recovered,
                claim.undone,
                claim.retries,
            )
            attempts = read_quarantine(
                job.connections.quarantine_roots,
                here=job.connections.shares_files(),
                spark_reader=lambda: job.quarantine,
                read=lambda reader: reader.attempts(job.task.pipeline),
            )
            _settle(job, claim, attempts, give_up=False)
            progress.settle_markers()
    except TallymarkError as error:
        progress.failed(error)
    return progress.report()


def replay_pipeline(job: Job, batch_id: str | None = None) -> PipelineReport:
    job = replace(job, task=replace(job.task, limits=_NO_LIMITS))
    pipeline = job.task.pipeline
    progress = PipelineProgress(job)
    try:
        with claim_table(job) as claim:
            progress.recovered, progress.undone = claim.recovered, claim.undone
            _settle(job, claim, job.quarantine.attempts(pipeline))
            while retry := claim.next_retry():
                load_one(job, claim, progress, retry)
            for content in _waiting_for_replay(job, batch_id):
                load_one(job, claim, progress, claim.create(content))
            progress.settle_markers()
            judged = judge(job.ledger, pipeline, job.quarantine.attempts(pipeline), job.now())
            job.quarantine.remove(pipeline, judged.dead)
    except TallymarkError as error:
        progress.failed(error)
    return progress.report()


def _waiting_for_replay(job: Job, batch_id: str | None) -> list[QuarantinedRows]:
    """Oldest first, so that a later row of a key still wins."""
    pipeline, quarantine = job.task.pipeline, job.quarantine
    judged = judge(job.ledger, pipeline, quarantine.attempts(pipeline))
    chosen = judged.shown if batch_id is None else judged.of_batch(batch_id)
    found = sorted(quarantine.summaries(pipeline, chosen), key=lambda summary: summary.quarantined_at)
    return [QuarantinedRows.of(pipeline, summary.batch_id, summary.rows) for summary in found]


def _settle(job: Job, claim: Claim, attempts: Collection[Attempt], *, give_up: bool = True) -> None:
    """A ledger that was lost, or that another project wrote, may lack the batches that have bad rows here,
    and their replays: the markers know them. All are asked for at once, since the claim must see the table
    as it was at one moment."""
    pipeline = job.task.pipeline
    batch_ids = {attempt.batch_id for attempt in attempts}
    replays = {content.content_hash: content for content in _replays_of(pipeline, batch_ids)}
    unknown = batch_ids - job.ledger.fates(pipeline, batch_ids).keys()
    markers = claim.settle(give_up=give_up, also=None if unknown else replays.keys())
    _adopt_batches(job, claim, markers, batch_ids)
    _adopt_replays(job, claim, markers, replays)


def _replays_of(pipeline: str, batch_ids: Collection[str]) -> list[QuarantinedRows]:
    return [QuarantinedRows.of(pipeline, batch_id, 0) for batch_id in sorted(batch_ids)]


def _adopt_batches(job: Job, claim: Claim, markers: TableMarkers, batch_ids: Collection[str]) -> None:
    """Without their contents, which are registered when their files are found again."""
    unknown = batch_ids - job.ledger.fates(job.task.pipeline, batch_ids).keys()
    found = {applied.marker.batch_id: applied for applied in markers.by_hash.values()}
    for batch_id in sorted(unknown & found.keys()):
        _adopt(job, claim, found[batch_id], Files(()))


def _adopt_replays(
    job: Job, claim: Claim, markers: TableMarkers, replays: Mapping[str, QuarantinedRows]
) -> None:
    applied = markers.by_hash.keys() & replays.keys()
    recorded = job.ledger.batch_of_hashes(job.table_key, applied)
    for content_hash in sorted(applied - recorded.keys()):
        _adopt(job, claim, markers.by_hash[content_hash], replays[content_hash])


def _adopt(job: Job, claim: Claim, applied: Applied, contents: BatchContents) -> None:
    marker, pipeline = applied.marker, job.task.pipeline
    batch = Batch(marker.batch_id, pipeline, job.table_key, contents, marker.sequence, marker.as_of)
    receipt = receipt_from_marker(job, applied)
    job.ledger.adopt(pipeline, job.table_key, batch, receipt, marker.fence)
    claim.recovered.append(receipt)
