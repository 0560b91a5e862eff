"""The metadata of one Iceberg table: its snapshots, which of them make up main, and their summaries.

Every commit of a table writes one file that holds all of it. Where that file is local it is read without
Spark: a run that finds nothing new starts none. Elsewhere Spark says where it is and reads it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from tallymark.destinations.durable import sync_files, sync_folder
from tallymark.errors import DestinationError
from tallymark.model.receipt import Marker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER = "tallymark.marker"  # in the summary of a snapshot
EMPTY = "empty"  # the version of a table without a snapshot
_VERSIONED = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_SOURCE = "source-snapshot-id"  # of a cherry-picked snapshot: the one that it repeats
_LARGE_BYTES = 128 << 20
_CHANGES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
_MAINTENANCE = "replace"  # the operation of compaction: files change, rows do not


@dataclass(frozen=True)
class Snapshot:
    id: int
    parent: int | None
    sequence: int
    committed_at: datetime
    operation: str
    schema_id: int | None
    summary: Mapping[str, str]

    @cached_property
    def marker(self) -> Marker | None:
        return Marker.from_json(self.summary.get(MARKER))

    @property
    def source(self) -> int | None:
        found = self.summary.get(_SOURCE)
        return None if found is None else int(found)

    @property
    def changes_rows(self) -> bool:
        return self.operation != _MAINTENANCE and any(self.number(name) for name in _CHANGES)

    def number(self, name: str) -> int:
        return int(self.summary.get(name, "0"))


@dataclass(frozen=True)
class TableMetadata:
    table_id: str
    location: str
    format_version: int
    head: int | None  # the snapshot that main is at
    snapshots: Mapping[int, Snapshot]
    branches: tuple[str, ...]
    schema_id: int
    schema: Mapping[str, Any]
    partitioned_by: tuple[tuple[str, str], ...]  # source column and transform, of the current spec
    has_old_specs: bool  # files of other partition specs may be left
    properties: dict[str, str]
    was_main: frozenset[int]  # snapshots that main was at, undone ones too

    @property
    def version(self) -> str:
        return EMPTY if self.head is None else str(self.head)

    @cached_property
    def ancestors(self) -> tuple[Snapshot, ...]:
        """What main consists of, newest first, as far back as snapshots were not expired."""
        found, at = [], self.head
        while at is not None and at in self.snapshots:
            found.append(self.snapshots[at])
            at = found[-1].parent
        return tuple(found)

    @property
    def column_names(self) -> list[str]:
        return [field["name"] for field in self.schema["fields"]]

    @property
    def reaches_its_root(self) -> bool:
        return not self.ancestors or self.ancestors[-1].parent is None

    @property
    def unique_by(self) -> tuple[str, ...]:
        """What the last load left unique, unless somebody else may have changed rows since."""
        for snapshot in self.ancestors:
            if snapshot.marker is not None:
                return snapshot.marker.unique_by
            if snapshot.changes_rows:
                return ()
        return ()

    @property
    def content_version(self) -> str:
        """The same after commits that leave every row as it was."""
        for snapshot in self.ancestors:
            if snapshot.changes_rows or snapshot.parent not in self.snapshots:
                return str(snapshot.id)
        return EMPTY

    @property
    def is_large(self) -> bool:
        return bool(self.ancestors) and self.ancestors[0].number("total-files-size") >= _LARGE_BYTES

    @classmethod
    def parse(cls, text: bytes) -> TableMetadata:
        found: dict[str, Any] = json.loads(text)
        snapshots = [_snapshot(each) for each in found.get("snapshots") or ()]
        refs: dict[str, Any] = found.get("refs") or {}
        head = refs.get("main", {}).get("snapshot-id", found.get("current-snapshot-id"))
        schemas = found.get("schemas") or [found["schema"]]
        schema_id = found.get("current-schema-id", 0)
        schema = next((s for s in schemas if s.get("schema-id", 0) == schema_id), schemas[-1])
        return cls(
            table_id=found["table-uuid"],
            location=found["location"].rstrip("/"),
            format_version=found["format-version"],
            head=None if head in (None, -1) else head,
            snapshots={snapshot.id: snapshot for snapshot in snapshots},
            branches=tuple(name for name, ref in refs.items() if ref.get("type") == "branch"),
            schema_id=schema_id,
            schema=schema,
            partitioned_by=_partitioned_by(found, schema),
            has_old_specs=len(found.get("partition-specs") or ()) > 1,
            properties=dict(found.get("properties") or {}),
            was_main=frozenset(entry["snapshot-id"] for entry in found.get("snapshot-log") or ()),
        )


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    summary = dict(found.get("summary") or {})
    return Snapshot(
        id=found["snapshot-id"],
        parent=found.get("parent-snapshot-id"),
        sequence=found.get("sequence-number", 0),
        committed_at=datetime.fromtimestamp(found["timestamp-ms"] / 1000, UTC),
        operation=summary.pop("operation", ""),
        schema_id=found.get("schema-id"),
        summary=summary,
    )


def _partitioned_by(found: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    names = {field["id"]: field["name"] for field in schema["fields"]}
    specs = found.get("partition-specs") or ()
    current = next((s for s in specs if s["spec-id"] == found.get("default-spec-id", 0)), {"fields": ()})
    return tuple((names.get(f["source-id"], ""), f["transform"]) for f in current["fields"])


@dataclass(frozen=True)
class MetadataFile:
    """A local file. Its number is used again by a table that takes the place of a dropped one."""

    path: Path
    inode: int
    modified_ns: int

    @classmethod
    def at(cls, path: Path) -> MetadataFile:
        found = path.stat()
        return cls(path, found.st_ino, found.st_mtime_ns)

    def read(self) -> TableMetadata:
        return _parsed(self)


@lru_cache(maxsize=32)
def _parsed(file: MetadataFile) -> TableMetadata:
    return TableMetadata.parse(_unzipped(file.path.read_bytes()))


def _unzipped(content: bytes) -> bytes:
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


class MetadataFiles(Protocol):
    """Of one table, where this process sees the files."""

    def is_reachable(self) -> bool:
        """False if the place of all tables is missing, such as a disk that is not mounted."""

    def file(self) -> MetadataFile | None: ...

    def latest(self) -> TableMetadata | None:
        """None if there is no table."""


@dataclass(frozen=True)
class HadoopFiles:
    """The metadata of the greatest number counts, as for Iceberg itself."""

    warehouse: Path
    folder: Path

    def is_reachable(self) -> bool:
        return self.warehouse.is_dir()

    def file(self) -> MetadataFile | None:
        try:
            names = [entry.name for entry in (self.folder / "metadata").iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(str(self.folder), error) from error
        numbers = {int(found[1]): name for name in names if (found := _VERSIONED.fullmatch(name))}
        if not numbers:
            return None
        return MetadataFile.at(self.folder / "metadata" / numbers[max(numbers)])

    def latest(self) -> TableMetadata | None:
        try:
            file = self.file()
            return None if file is None else file.read()
        except FileNotFoundError:  # dropped just now
            return None


@dataclass(frozen=True)
class SparkMetadata:
    """Spark says which file it is, and reads it."""

    spark: Callable[[], SparkSession]
    table_sql: str

    def latest(self) -> TableMetadata | None:
        from pyspark.errors import AnalysisException

        from tallymark.spark.failures import condition

        spark = self.spark()
        try:
            files = spark.sql(f"SELECT file FROM {self.table_sql}.metadata_log_entries").collect()
        except AnalysisException as error:
            if condition(error) in ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"):
                return None
            raise
        return self._read(spark, files[-1][0])

    def _read(self, spark: SparkSession, file: str) -> TableMetadata:
        content = spark.read.format("binaryFile").load(file).select("content").collect()[0][0]
        return TableMetadata.parse(_unzipped(bytes(content)))


def make_durable(table: Path, since_ns: int) -> None:
    """What was written into the folder of a table since then survives a power loss after this. Iceberg leaves
    it to the file system, which may keep a commit and lose its files."""
    new: list[Path] = []
    for folder, folders, files in os.walk(table):
        folders[:] = [name for name in folders if not name.startswith("_")]
        place = Path(folder)
        found = [place / name for name in files if _is_since(place / name, since_ns)]
        new += found
        if found or _is_since(place, since_ns):
            new.append(place)  # its name, in the folder above it
    sync_files(path for path in new if path.is_file())
    for path in new:
        if path.is_dir():
            sync_folder(path.parent)


def _is_since(path: Path, since_ns: int) -> bool:
    try:
        return path.stat().st_mtime_ns >= since_ns
    except FileNotFoundError:  # removed meanwhile by others
        return False


def local_path(place: str) -> Path | None:
    """None for a place that is not a local folder or file."""
    address = urlsplit(place)
    if address.scheme == "file":
        return Path(unquote(address.path))
    return Path(place) if place and not address.scheme else None


def unreadable(table: str, error: Exception) -> DestinationError:
    return DestinationError(
        f"{table}: its Iceberg metadata cannot be read: {error}",
        hint="check that this user may read the table's metadata folder and that its newest file is whole",
    )
