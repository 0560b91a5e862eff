"""What a load is about: files, their contents, and the batch that one commit applies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

REPLAY_PREFIX = "quarantine:"  # of the paths of replays: the id of their batch follows


class FileState(StrEnum):
    PENDING = "PENDING"  # registered, waits for a batch
    PROCESSING = "PROCESSING"  # in a batch whose outcome is not recorded yet
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"  # needs repair or `tallymark requeue`
    DUPLICATE = "DUPLICATE"  # the same content came before under another name


class BatchState(StrEnum):
    PROCESSING = "PROCESSING"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"  # nothing was written, and its files are free again or FAILED


class BatchKind(StrEnum):
    FILES = "files"
    REPLAY = "replay"  # rows that come back from the quarantine
    FRAME = "frame"  # a DataFrame handed to the library
    QUERY = "query"  # the result of a transform


class FileStat(NamedTuple):
    """A listed file: what is known without reading it. `path` is absolute, or a full URL. (A tuple, because a
    landing zone may hold a million.)"""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class SourceFile:
    """A file with known content. For a replay, `path` is `quarantine:<batch id>`; for the result of a
    transform it is `query:<hash>`, with the time it was first asked for, and `inputs` says what it reads."""

    path: str
    size: int
    modified_ns: int
    content_hash: str
    inputs: str | None = None  # of a transform, as JSON

    @property
    def stat(self) -> FileStat:
        return FileStat(self.path, self.size, self.modified_ns)


@dataclass(frozen=True)
class Batch:
    """What one commit applies. It keeps its id, order, sequence and `as_of` through every retry,
    so that a retry writes the same rows and the destination recognises it."""

    id: str
    pipeline: str
    table_key: str  # destination and table: the unit of leases, sequences and markers
    kind: BatchKind
    files: tuple[SourceFile, ...]
    sequence: int
    as_of: datetime  # timezone-aware UTC
    attempt: int = 1

    @property
    def content_hashes(self) -> tuple[str, ...]:
        return tuple(file.content_hash for file in self.files)
