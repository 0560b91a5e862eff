"""Markers of an Iceberg table: in the summaries of main's snapshots, and copied into the table's folder.

A summary is lost with its snapshot, which `expire_snapshots` removes. So what main consists of is copied,
snapshot by snapshot, into Tallymark's own folder inside the table's: `remove_orphan_files` leaves folders
with a leading underscore alone.

1. A load publishes rows and marker together (write.py). From here on the content is applied.
2. `copy` adds what is not copied yet. Dying before it loses nothing: the next `copy` heals it.
3. What counts are the ancestors of main, each of which names its parent. A snapshot that expired is found
   among the copies; a copy that no ancestor leads to is of a load that was undone, or never became
   durable, and does not count. Where snapshots of others expired before they were copied, the newest copy
   that is older than the oldest ancestor continues the line.

Rows carry the table's id: a table that is dropped and made again starts with no markers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import TableMarkers
from tallymark.destinations.iceberg.metadata import Snapshot, TableMetadata
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.history import aware
from tallymark.destinations.lakehouse.home import Folder, stored_delta
from tallymark.model.receipt import Applied, Marker
from tallymark.spark.frames import local_frame

_FILES, _TABLE = "ancestors", "snapshots"
_FIELDS = {
    "table_id": "string",
    "snapshot_id": "bigint",
    "parent_id": "bigint",
    "source_id": "bigint",
    "sequence": "bigint",
    "committed_at": "timestamp",
    "was_main": "boolean",
    "marker": "string",
}
_SPARK_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _FIELDS.items())
_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ARROW_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in _FIELDS.items()])
_COMMITS = "batch_id string, sequence bigint, fence bigint"


@dataclass(frozen=True)
class Link:
    """A snapshot as far as markers are concerned: from the metadata, or a copy."""

    id: int
    parent: int | None
    source: int | None  # the snapshot that it repeats, if it was cherry-picked
    sequence: int
    committed_at: datetime
    marker_text: str | None

    @cached_property
    def marker(self) -> Marker | None:
        return Marker.from_json(self.marker_text)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Link:
        marker = snapshot.marker
        text = None if marker is None else marker.to_json()
        return cls(
            snapshot.id, snapshot.parent, snapshot.source, snapshot.sequence, snapshot.committed_at, text
        )

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Link:
        return cls(
            row["snapshot_id"],
            row["parent_id"],
            row["source_id"],
            row["sequence"],
            aware(row["committed_at"]),
            row["marker"],
        )

    def as_row(self, table_id: str) -> dict[str, object]:
        return {
            "table_id": table_id,
            "snapshot_id": self.id,
            "parent_id": self.parent,
            "source_id": self.source,
            "sequence": self.sequence,
            "committed_at": self.committed_at,
            "was_main": True,
            "marker": self.marker_text,
        }


class IcebergMarkers:
    """As of one reading of the metadata. Copies are read once."""

    def __init__(self, spark: SparkSession, metadata: TableMetadata, copies: LinkCopies):
        self._spark = spark
        self._metadata = metadata
        self._store = copies

    def find(self, content_hashes: Collection[str] | None) -> TableMarkers:
        wanted = None if content_hashes is None else set(content_hashes)
        held = list(self._held())
        by_hash = {
            content_hash: applied
            for applied in held
            for content_hash in applied.marker.content_hashes
            if wanted is None or content_hash in wanted
        }
        ever = [*held_markers(self._ever()), *(applied.marker for applied in held)]
        return TableMarkers(
            by_hash,
            last_sequence=max((marker.sequence for marker in ever), default=0),
            last_fence=max((marker.fence for marker in ever), default=0),
            held_sequence=max((applied.marker.sequence for applied in held), default=0),
        )

    def commits(self) -> DataFrame:
        """What identifies each load that the table holds."""
        found = {(a.marker.batch_id, a.marker.sequence, a.marker.fence) for a in self._held()}
        return local_frame(self._spark, [*found], _COMMITS)

    def copy(self) -> None:
        missing = [link for link in self._in_log.values() if link.id not in self._copied]
        if missing:
            self._store.add([link.as_row(self._metadata.table_id) for link in missing])
            self._copied.update({link.id: link for link in missing})

    def oldest_uncopied(self) -> str | None:
        """The first of our commits that is not copied yet."""
        waiting = [i for i, link in self._in_log.items() if link.marker_text and i not in self._copied]
        return str(waiting[-1]) if waiting else None

    def with_metadata(self, metadata: TableMetadata) -> IcebergMarkers:
        """For a later state of the same table: copies only grow."""
        later = IcebergMarkers(self._spark, metadata, self._store)
        if "_copied" in self.__dict__:
            later.__dict__["_copied"] = self._copied
        return later

    @cached_property
    def _copied(self) -> dict[int, Link]:
        rows = self._store.rows()
        return {link.id: link for link in map(Link.from_row, rows)}

    @cached_property
    def _in_log(self) -> dict[int, Link]:
        return {snapshot.id: Link.of(snapshot) for snapshot in self._metadata.ancestors}

    def _ever(self) -> Iterable[Link]:
        """Undone ones too. Snapshots of branches that never became main do not count."""
        metadata = self._metadata
        was_main = (metadata.snapshots[i] for i in metadata.was_main if i in metadata.snapshots)
        return [*self._copied.values(), *map(Link.of, was_main)]

    def _held(self) -> Iterator[Applied]:
        """Oldest first. A cherry-picked snapshot brings what its source brought, and no marker."""
        everything = self._copied | {s.id: Link.of(s) for s in self._metadata.snapshots.values()}
        for link in reversed(lineage(self._metadata.head, self._in_log, self._copied)):
            marker = link.marker
            if marker is None and link.source in everything:
                marker = everything[link.source].marker
            if marker is not None:
                yield Applied(marker, str(link.id), link.committed_at)


def lineage(head: int | None, in_log: Mapping[int, Link], copied: Mapping[int, Link]) -> list[Link]:
    """What main consists of, newest first."""
    found: list[Link] = []
    at = head
    while at is not None:
        link = in_log.get(at) or copied.get(at)
        if link is None and found:  # it expired before it was copied
            older = [copy for copy in copied.values() if copy.sequence < found[-1].sequence]
            link = max(older, key=lambda copy: copy.sequence, default=None)
        if link is None:
            break
        found.append(link)
        at = link.parent
    return found


def held_markers(links: Iterable[Link]) -> Iterator[Marker]:
    return (link.marker for link in links if link.marker is not None)


class LinkCopies(Protocol):
    """Of one table: rows of earlier tables in this place are left out."""

    def rows(self) -> list[Mapping[str, Any]]: ...

    def add(self, rows: list[dict[str, object]]) -> None: ...


@dataclass(frozen=True)
class LinkFiles:
    files: FactFiles
    table_id: str

    def rows(self) -> list[Mapping[str, Any]]:
        def find(files: list[Any]) -> pa.Table:
            if not files:
                return _ARROW_SCHEMA.empty_table()
            stored = ds.dataset([str(file) for file in files], schema=_ARROW_SCHEMA, format="parquet")
            return stored.to_table(filter=ds.field("table_id") == self.table_id, use_threads=False)

        return list(self.files.read(find).to_pylist())

    def add(self, rows: list[dict[str, object]]) -> None:
        self.files.add(_ARROW_SCHEMA, pa.Table.from_pylist(rows, _ARROW_SCHEMA).to_batches())
        if many := self.files.too_many():
            self.files.rewrite(many)


@dataclass(frozen=True)
class LinkTable:
    """Where this process does not see the table's folder."""

    spark: SparkSession
    home: Folder
    table_id: str

    def rows(self) -> list[Mapping[str, Any]]:
        stored = stored_delta(self.spark, self.home.own(_TABLE))
        if stored is None:
            return []
        return [row.asDict() for row in stored.where(stored["table_id"] == self.table_id).collect()]

    def add(self, rows: list[dict[str, object]]) -> None:
        frame = local_frame(self.spark, [tuple(row[name] for name in _FIELDS) for row in rows], _SPARK_SCHEMA)
        frame.coalesce(1).write.format("delta").mode("append").save(self.home.own(_TABLE).url)


def copies_of(spark: SparkSession, home: Folder, table_id: str) -> LinkCopies:
    place = home.own(_FILES)
    if place.local is not None:
        return LinkFiles(FactFiles(place.local, "the markers of loads", _ARROW_SCHEMA), table_id)
    return LinkTable(spark, home, table_id)
