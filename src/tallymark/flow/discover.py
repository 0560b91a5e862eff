"""Step 1: list the source, hash what is new, register it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallymark.errors import UnreadableFile
from tallymark.flow.job import Job
from tallymark.model.batch import FileState, SourceFile
from tallymark.model.report import Discovery, Step
from tallymark.sources.discover import Found
from tallymark.sources.discover import discover as look


@dataclass(frozen=True)
class Discovered:
    report: Discovery
    unreadable: tuple[UnreadableFile, ...]


def discover(job: Job) -> Discovered:
    known = job.ledger.known_files(job.task.pipeline, table_key=job.table_key)
    found = look_for_files(job, known)
    registered = job.ledger.register(job.task.pipeline, job.table_key, found.files)
    job.ledger.forget_vanished(
        job.task.pipeline, found.listed_paths, table_key=job.table_key, known=known.keys()
    )
    return Discovered(
        Discovery(found.listed, len(registered.new), registered.duplicates, found.waiting), found.unreadable
    )


def look_for_files(job: Job, known: dict[str, SourceFile]) -> Found:
    """Files that failed are hashed again: one that was repaired, or rewritten within the clock's grain, may
    have kept its size and time."""
    job.tell(Step.DISCOVER, "looking for files")
    waiting = job.ledger.waiting_files(job.task.pipeline, table_key=job.table_key)
    failed = {entry.file.path for entry in waiting if entry.state is FileState.FAILED}
    return look(
        job.task.files,
        job.task.root,
        {path: file for path, file in known.items() if path not in failed},
        lambda: job.spark,
        now=job.clock(),
        on_progress=_hashing(job),
    )


def _hashing(job: Job) -> Callable[[int, int], None]:
    return lambda done, total: job.tell(Step.DISCOVER, "hashing files", done, total)
