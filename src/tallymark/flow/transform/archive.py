"""Moves files away once it is certain that their rows are in the table (`archive_landing_zones`).

1. Ask the ledger for files whose load is COMMITTED and that were not moved yet, including those of an earlier
   run that died before this step. Duplicates were not read, so they stay.
2. Move each into `_archive/` beside it, if it is still the file that was read. Globs do not see that folder.
3. Record in the ledger that the path no longer holds this content. If the process dies before that, the next
   run finds nothing at the path and records it.

The files of a transform's landing zones are those that its results were pinned to. A content that one of its
results has read, or is reading, is not read again: neither before the file is moved, nor when it is delivered
again, unless it brings a state back (`repeated_content`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tallymark.errors import SourceError
from tallymark.flow.job import Job
from tallymark.model.batch import FileStat, SourceFile
from tallymark.model.report import Step
from tallymark.model.settings import RepeatedContent

FOLDER = "_archive"


def archive_committed(job: Job) -> tuple[str, ...]:
    """Returns a warning for each file that could not be moved; the next run tries again."""
    files = _committed_files(job)
    warnings, gone = [], []
    if files:
        job.tell(Step.REPORT, "archiving files")
    for file in files:
        try:
            if _archived(file):
                gone.append(file.path)
        except OSError as error:
            warnings.append(f"{file.path}: was loaded, but could not be archived: {error.strerror or error}")
    if gone and job.task.query is None:
        job.ledger.mark_gone(job.task.pipeline, gone, table_key=job.table_key)
    return tuple(warnings)


@dataclass(frozen=True)
class FilesRead:
    """The files that results of this transform were computed from."""

    stats: frozenset[FileStat]
    hashes: frozenset[str]
    latest: frozenset[str]  # hashes of the newest result

    @classmethod
    def of(cls, job: Job) -> FilesRead:
        results = job.ledger.results(job.table_key, with_open=True)
        files = [file for result in results for file in result.pin.files]
        latest = results[0].pin.files if results else ()
        return cls(
            frozenset(file.stat for file in files),
            frozenset(file.content_hash for file in files),
            frozenset(file.content_hash for file in latest),
        )

    def is_due(self, file: SourceFile, policy: RepeatedContent) -> bool:
        """Whether a result must still read it: it is new, or brings a state back."""
        if file.content_hash not in self.hashes:
            return True
        returns = file.stat not in self.stats and file.content_hash not in self.latest
        if returns and policy is RepeatedContent.FAIL:
            raise SourceError(
                f"{file.path}: its content was read before, and repeated_content is fail",
                hint="remove it, or set repeated_content: apply",
                facts={"path": file.path},
            )
        return returns and policy is RepeatedContent.APPLY


def _committed_files(job: Job) -> list[SourceFile]:
    if job.task.query is None:
        return job.ledger.committed_files(job.task.pipeline, table_key=job.table_key)
    results = job.ledger.results(job.table_key)
    return [file for result in results for file in result.pin.files]


def _archived(file: SourceFile) -> bool:
    """Returns whether its path no longer holds it. Another file in its place is not touched."""
    path = Path(file.path)
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    if (found.st_size, found.st_mtime_ns) != (file.size, file.modified_ns):
        return False
    folder = path.parent / FOLDER
    folder.mkdir(exist_ok=True)
    target = folder / path.name
    if target.exists():  # an earlier delivery of the same name
        target = folder / f"{path.stem}.{file.content_hash[:12]}{path.suffix}"
    path.replace(target)
    return True
