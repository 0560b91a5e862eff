"""Which of the waiting files make the next batch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tallymark.ledger.facts import WaitingFile
from tallymark.model.batch import FileState, SourceFile


@dataclass(frozen=True)
class Choice:
    files: tuple[SourceFile, ...]
    held_back: tuple[str, ...] = ()  # files that wait behind a failed one


def choose(
    waiting: Sequence[WaitingFile],
    *,
    ordered: bool,
    max_files: int,
    max_bytes: int,
    max_attempts: int,
    set_aside: Collection[str] = (),
) -> Choice:
    """`waiting` is in the order in which files apply. A file that failed for good, or in this run
    (`set_aside`), stops those after it where order matters, and nothing else. A file that failed before
    gets a batch of its own, so that it cannot pull others down again."""
    files: list[SourceFile] = []
    size = 0
    for position, entry in enumerate(waiting):
        file = entry.file
        failed_before = entry.state is FileState.FAILED
        if file.path in set_aside or (failed_before and entry.attempts >= max_attempts):
            if ordered:
                behind = tuple(later.file.path for later in waiting[position + 1 :])
                return Choice(tuple(files), behind)
            continue
        if files and (failed_before or len(files) >= max_files or size + file.size > max_bytes):
            break
        files.append(file)
        size += file.size
        if failed_before:
            break
    return Choice(tuple(files))
