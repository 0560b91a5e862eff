"""What one commit applies: files, the result of a query, rows of a DataFrame or rows of the quarantine.

Every content has an identity, by which it is applied to a table once, and a name, by which reports show it.
The identity is the hash of the content, unless a state returns: see `SourceFile.returned`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple, assert_never


class FileState(StrEnum):
    """Of a content in the ledger."""

    PENDING = "PENDING"  # registered, waits for a batch
    PROCESSING = "PROCESSING"  # in a batch whose outcome is not recorded yet
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"  # needs repair or `tallymark requeue`
    DUPLICATE = "DUPLICATE"  # the same content was registered before under another name


class BatchState(StrEnum):
    PROCESSING = "PROCESSING"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"  # nothing was written; its contents are PENDING or FAILED


class FileStat(NamedTuple):
    """A listed file: what is known without reading it. `path` is absolute, or a full URL. (A tuple, because a
    landing zone may hold a million.)"""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class SourceFile:
    """A file with known content. Where a content is a state, it can come back after another one: then it is
    a delivery of its own, which `returned` tells from the earlier ones."""

    path: str
    size: int
    modified_ns: int
    content_hash: str  # of its bytes
    returned: int = 0  # how often its content had come back to the table, this delivery included

    @property
    def name(self) -> str:
        return self.path

    @property
    def identity(self) -> str:
        return code_hash(self.content_hash, "returned", self.returned) if self.returned else self.content_hash

    @property
    def stat(self) -> FileStat:
        return FileStat(self.path, self.size, self.modified_ns)


@dataclass(frozen=True)
class Pin:
    """What the result of a transform is computed from: its code, and the versions of its inputs.

    A pin is written to the ledger before anything is read, so that a retry reads the same inputs, whatever
    has arrived in the meantime.
    """

    code: str  # hash of the transform, its settings and variables
    tables: Mapping[str, str] = field(default_factory=dict)  # pipeline → version of its table
    zones: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict)  # landing zone → files
    refresh: bool = False  # the result replaces the table, as though the table were empty
    window: Window | None = None  # only these rows of the result

    @property
    def identity(self) -> str:
        """A hash of code and inputs. A refresh has the same: it leaves the table as these inputs would."""
        contents = {
            zone: sorted((file.path, file.content_hash) for file in files)
            for zone, files in self.zones.items()
        }
        return code_hash(self.code, dict(self.tables), contents)

    @property
    def is_rerun(self) -> bool:
        """Whether `--full-refresh`, `--since` or `--until` asked for it."""
        return self.refresh or self.window is not None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """Of all landing zones."""
        return tuple(file for files in self.zones.values() for file in files)


@dataclass(frozen=True)
class QueryResult:
    """What a transform returns for the inputs of its pin. The same code on the same inputs is the same
    content, so it is not applied twice."""

    pin: Pin
    content_hash: str
    requested_ns: int  # results are applied in the order in which they were first requested

    @classmethod
    def of(cls, pin: Pin, requested_ns: int, *, after: str = "") -> QueryResult:
        """`after` distinguishes a result from an earlier equal one, if the table held another in between."""
        content_hash = pin.identity
        if pin.window is not None:
            content_hash = code_hash(content_hash, asdict(pin.window))
        if after:
            content_hash = code_hash(content_hash, after)
        return cls(pin, content_hash, requested_ns)

    @property
    def identity(self) -> str:
        return self.content_hash

    @property
    def name(self) -> str:
        return f"{'query' if self.is_whole else 'window'}:{self.content_hash[:16]}"

    @property
    def is_whole(self) -> bool:
        """The result for a window says nothing about the rest of the table."""
        return self.pin.window is None


@dataclass(frozen=True)
class FrameRows:
    """Rows of a DataFrame that the library was given. Only its caller can bring them again."""

    id: str
    content_hash: str

    @classmethod
    def of(cls, content_id: str) -> FrameRows:
        return cls(content_id, sha256(f"frame:{content_id}".encode()).hexdigest())

    @property
    def identity(self) -> str:
        return self.content_hash

    @property
    def name(self) -> str:
        return f"frame:{self.id}"


@dataclass(frozen=True)
class QuarantinedRows:
    """Rows of one batch that are in the quarantine, to be replayed."""

    batch_id: str  # of the batch that rejected them
    rows: int
    content_hash: str

    @classmethod
    def of(cls, pipeline: str, batch_id: str, rows: int) -> QuarantinedRows:
        """A replay takes all that is left of a batch's rows, so a batch is replayed once, whatever part of it
        was dropped before or after."""
        return cls(batch_id, rows, code_hash("replay", pipeline, batch_id))

    @property
    def identity(self) -> str:
        return self.content_hash

    @property
    def name(self) -> str:
        return replay_name(self.batch_id)


def replay_name(batch_id: str) -> str:
    """The name of the content that a replay of the bad rows of this batch loads."""
    return f"quarantine:{batch_id}"


@dataclass(frozen=True)
class Files:
    """Files that one commit applies, in their order."""

    files: tuple[SourceFile, ...]


Content = SourceFile | QueryResult | FrameRows | QuarantinedRows
BatchContents = Files | QueryResult | FrameRows | QuarantinedRows


@dataclass(frozen=True)
class Batch:
    """What one commit applies. It keeps its id, order, sequence and `as_of` through every retry,
    so that a retry writes the same rows and the destination recognises it."""

    id: str
    pipeline: str
    table_key: str  # destination and table: the unit of leases, sequences and markers
    contents: BatchContents
    sequence: int
    as_of: datetime  # timezone-aware UTC
    attempt: int = 1

    @property
    def members(self) -> tuple[Content, ...]:
        """One by one, in their order."""
        return self.contents.files if isinstance(self.contents, Files) else (self.contents,)

    @property
    def content_hashes(self) -> tuple[str, ...]:
        """The identities of its contents, as ledger and markers keep them."""
        return tuple(content.identity for content in self.members)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(content.name for content in self.members)

    @property
    def files_read(self) -> tuple[SourceFile, ...]:
        """The files that its rows come from: its own, or those in the landing zones of a transform."""
        match self.contents:
            case Files(files=files):
                return files
            case QueryResult(pin=pin):
                return pin.files
            case FrameRows() | QuarantinedRows():
                return ()
            case _:
                assert_never(self.contents)


class Attempt(NamedTuple):
    """One attempt at a batch: bad rows are kept under it. A late worker may still be at an earlier attempt of
    the same batch, and reject other rows; only those of the attempt that committed count."""

    batch_id: str
    fence: int | None  # None: written by a version that kept one set of rows per batch


OTHER_FENCE = -1  # of a batch whose contents another batch has applied: none of its attempts committed


@dataclass(frozen=True)
class Fate:
    """What the ledger knows of a batch that has bad rows."""

    state: BatchState
    fence: int | None  # of the attempt that committed; None: recorded by an earlier version
    is_replayed: bool  # a replay of its bad rows is committed
    settled_at: datetime | None  # when it, or its replay, got its state

    def shows(self, attempt: Attempt) -> bool:
        """Whether the bad rows of this attempt are visible and can be replayed."""
        committed = self.state is BatchState.COMMITTED and not self.is_replayed
        return committed and (None in (attempt.fence, self.fence) or attempt.fence == self.fence)


def code_hash(*parts: object) -> str:
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


WatermarkValue = str | int | float | Decimal | date | datetime

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FRACTIONAL = ("float", "double")


@dataclass(frozen=True)
class Rerun:
    """What `--full-refresh`, `--since` and `--until` ask of transforms, beside what is new."""

    full_refresh: bool = False  # compute all rows again, as though the table were empty, and replace it
    since: str | None = None  # only rows from here on; a text, because only the result has the column's type
    until: str | None = None  # only rows before this

    @property
    def is_windowed(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def is_requested(self) -> bool:
        return self.full_refresh or self.is_windowed


ONLY_NEW = Rerun()  # nothing is computed again


@dataclass(frozen=True)
class Window:
    """Rows whose `column` is in [since, until)."""

    column: str
    since: str | None
    until: str | None


@dataclass(frozen=True)
class Watermark:
    """The highest value of a pipeline's watermark column that has been loaded into its table. Markers and
    receipts keep it as Spark prints it (timestamps in UTC), with its Spark type."""

    text: str
    type: str

    @property
    def value(self) -> WatermarkValue:
        if self.type in _WHOLE:
            return int(self.text)
        if self.type in _FRACTIONAL:
            return float(self.text)
        if self.type.startswith("decimal"):
            return Decimal(self.text)
        match self.type:
            case "date":
                return date.fromisoformat(self.text)
            case "timestamp":
                return datetime.fromisoformat(self.text).replace(tzinfo=UTC)
            case "timestamp_ntz":
                return datetime.fromisoformat(self.text)
            case _:
                return self.text

    def as_dict(self) -> dict[str, str]:
        return {"text": self.text, "type": self.type}

    @classmethod
    def from_dict(cls, data: dict[str, str] | None) -> Watermark | None:
        return None if data is None else cls(data["text"], data["type"])
