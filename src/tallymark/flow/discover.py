"""Step 1: list the source, hash what is new, register it."""

from __future__ import annotations

from dataclasses import dataclass

from tallymark.errors import UnreadableFile
from tallymark.flow.job import Job
from tallymark.flow.offer import look
from tallymark.model.report import DeferredInput, Discovery, RepeatedFile


@dataclass(frozen=True)
class Discovered:
    report: Discovery
    unreadable: tuple[UnreadableFile, ...]


def discover(job: Job) -> Discovered:
    found = look(job)
    registered = job.ledger.register(job.task.pipeline, job.table_key, found.files)
    job.ledger.forget_vanished(job.task.pipeline, found.vanished)
    return Discovered(
        Discovery(
            found.listed,
            len(registered.new),
            tuple(RepeatedFile(*pair) for pair in registered.duplicates),
            tuple(DeferredInput(*pair) for pair in found.waiting),
        ),
        found.unreadable,
    )
