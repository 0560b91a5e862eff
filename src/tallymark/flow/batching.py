"""Which of the waiting contents make the next batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tallymark.flow.job import Job
from tallymark.ledger.contents import WaitingContent
from tallymark.model.batch import BatchContents, Files, FileState, QueryResult, SourceFile
from tallymark.sources.new_files import order_files


@dataclass(frozen=True)
class Choice:
    contents: BatchContents | None  # None: nothing can be loaded now
    held_back: tuple[str, ...] = ()  # contents that wait behind a failed one


def next_contents(job: Job, set_aside: Collection[str], max_files: int) -> Choice:
    return choose(
        waiting_in_order(job, set_aside),
        ordered=job.task.ordered,
        max_files=max_files,
        max_bytes=job.task.batch.max_bytes_value,
        max_attempts=job.task.max_attempts,
        set_aside=set_aside,
    )


def waiting_in_order(job: Job, unhashed: Collection[str] = ()) -> list[WaitingContent]:
    """Registered contents that are not loaded, in the order in which they apply. Files that could not even be
    hashed keep their places."""
    entries = {
        entry.content.name: entry
        for entry in job.ledger.waiting_contents(job.task.pipeline, table_key=job.table_key)
    }
    for path in set(unhashed) - entries.keys():
        unread = SourceFile(path, 0, 0, "")
        entries[path] = WaitingContent(unread, FileState.FAILED, 0, "cannot be read")
    contents = [entry.content for entry in entries.values()]
    files = order_files((c for c in contents if isinstance(c, SourceFile)), job.task.order)
    results = sorted((c for c in contents if isinstance(c, QueryResult)), key=lambda c: c.requested_ns)
    names = [file.path for file in files] + [result.name for result in results]
    return [entries[name] for name in names]


def choose(
    waiting: Sequence[WaitingContent],
    *,
    ordered: bool,
    max_files: int,
    max_bytes: int,
    max_attempts: int,
    set_aside: Collection[str] = (),
) -> Choice:
    """`waiting` is in the order in which contents apply. One that waits for `requeue`, or failed in this run
    (`set_aside`), stops those after it where order matters, and nothing else. One that failed before gets a
    batch of its own, so that it cannot make others fail again. So does the result of a query."""
    files: list[SourceFile] = []
    size = 0
    for position, entry in enumerate(waiting):
        content = entry.content
        failed_before = entry.state is FileState.FAILED
        if content.name in set_aside or entry.is_stuck(max_attempts):
            if ordered:
                behind = tuple(later.content.name for later in waiting[position + 1 :])
                return Choice(_batch_of(files), behind)
            continue
        if isinstance(content, QueryResult):
            return Choice(_batch_of(files) or content)
        if files and (failed_before or len(files) >= max_files or size + content.size > max_bytes):
            break
        files.append(content)
        size += content.size
        if failed_before:
            break
    return Choice(_batch_of(files))


def _batch_of(files: Sequence[SourceFile]) -> Files | None:
    return Files(tuple(files)) if files else None
