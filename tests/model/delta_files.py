"""Delta tables in the model: the real code of log, markers, copies and commits over real files. Only the part
of Spark and Delta is played: a commit is one file of the log, and a write whose number was used is dropped.

Log and copies can go back, each on its own: a power cut takes what was not durable yet, and a folder may be
put together from two backups.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from model.memory_table import COLUMNS, MemoryCommit, MemoryTable, Row
from tallymark.destinations.contract import Commit, TableMarkers, WriteMethod
from tallymark.destinations.delta.location import DeltaLocation, DeltaLocator
from tallymark.destinations.delta.table import DeltaTable
from tallymark.destinations.lakehouse.commit import LakehouseLoad
from tallymark.model.plan import Plan
from tallymark.model.receipt import Counts, Marker, Receipt
from tallymark.model.table import TableShape

if TYPE_CHECKING:
    from model.memory_destination import MemoryDestination

_SCHEMA = t.StructType([t.StructField("key", t.StringType()), t.StructField("number", t.LongType())])
_SPARK: Any = SimpleNamespace(
    conf=SimpleNamespace(get=lambda name, default="": "local[1]"),
    sparkContext=SimpleNamespace(
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: {"fs.defaultFS": "file:///"})
    ),
)

Files = dict[str, bytes]  # by name


@dataclass(frozen=True)
class _Version:
    held: tuple[MemoryCommit, ...]
    transaction: int  # the highest that was used


@dataclass
class LoggedTable(MemoryTable):
    """What its log should say is kept beside it, so that what is read from the files can be compared."""

    folder: Path = field(kw_only=True)
    copies: list[Files] = field(default_factory=lambda: [{}])  # as they were, the last ones now
    _versions: list[_Version] = field(default_factory=list)
    _made: int = 0  # tables that there were in this place

    def __post_init__(self) -> None:
        self.version = -1

    @property
    def exists(self) -> bool:
        return self.version >= 0

    def write(self, marker: Marker, rows: tuple[Row, ...], now: datetime, ledger: int) -> None:
        """What Delta does: it drops a transaction that it has."""
        last = self._versions[-1] if self._versions else _Version((), 0)
        if self.refuses_late and marker.sequence <= last.transaction:
            return
        done = MemoryCommit(marker, rows, self.version + 1, now, ledger)
        made = _Version((*last.held, done), max(last.transaction, marker.sequence))
        metrics = {"numOutputRows": str(len(rows))}
        self._append(
            {"operation": "WRITE", "operationMetrics": metrics, "userMetadata": marker.to_json()}, made
        )
        self.accepted.append(done)

    def foreign_commit(self) -> None:
        self._append({"operation": "WRITE"}, self._versions[-1] if self._versions else _Version((), 0))

    def restore(self, kept: int) -> None:
        self.restore_to(self.held[kept - 1].version if kept else -1)

    def restore_to(self, version: int) -> None:
        """RESTORE of Delta: a new version with old rows. The numbers that were used stay used."""
        if self.exists:
            old = self._versions[version].held if version >= 0 else ()
            parameters = {"version": str(version)}
            made = _Version(old, self._versions[-1].transaction)
            self._append({"operation": "RESTORE", "operationParameters": parameters}, made)

    def restore_backup(self, kept: int) -> None:
        """The whole folder: log and copies are of one time."""
        version = self.held[kept - 1].version if kept else -1
        self.log_goes_back(self.version - version)
        through = {commit.marker.sequence for commit in self.accepted}
        while _sequences(self.copies[-1]) - through:
            self.copies.pop()
        self._write_copies()

    def clean_up_log(self) -> None:
        """As Delta does once a checkpoint is older than `delta.logRetentionDuration`, all at once."""
        for version in range(self.version):
            for file in self._log.glob(f"{version:020}.*"):
                file.unlink()
        (self._log / f"{self.version:020}.checkpoint.parquet").touch()

    def log_goes_back(self, versions: int) -> None:
        """The newest commits are gone, whatever else remembers them."""
        for version in range(max(-1, self.version - versions) + 1, self.version + 1):
            for file in self._log.glob(f"{version:020}.*"):
                file.unlink()
        self._versions = self._versions[: max(0, self.version - versions + 1)]
        if not self._versions:
            shutil.rmtree(self._log, ignore_errors=True)
        kept = {id(commit) for version in self._versions for commit in version.held}
        self.accepted = [commit for commit in self.accepted if id(commit) in kept]
        self._now()

    def copies_go_back(self, states: int) -> None:
        del self.copies[max(1, len(self.copies) - states) :]
        self._write_copies()

    def remember_copies(self) -> None:
        found = {file.name: file.read_bytes() for file in self._markers.glob("*.parquet")}
        if found.keys() != self.copies[-1].keys():
            self.copies.append(found)

    @property
    def _log(self) -> Path:
        return self.folder / "_delta_log"

    @property
    def _markers(self) -> Path:
        return self.folder / "_tallymark/markers"

    def _write_copies(self) -> None:
        shutil.rmtree(self._markers, ignore_errors=True)
        self._markers.mkdir(parents=True)
        for name, content in self.copies[-1].items():
            (self._markers / name).write_bytes(content)

    def _append(self, info: dict[str, Any], made: _Version) -> None:
        version = len(self._versions)
        self._made += version == 0
        self._log.mkdir(parents=True, exist_ok=True)
        information = {"txnId": f"{self._made}-{version}", "readVersion": version - 1} | info
        with (self._log / f"{version:020}.json").open("x") as commit:
            commit.write(json.dumps({"commitInfo": information}) + "\n")
        summary = {"txnId": information["txnId"], "metadata": {"id": f"table {self._made}"}}
        (self._log / f"{version:020}.crc").write_text(json.dumps(summary))
        self._versions.append(made)
        self._now()

    def _now(self) -> None:
        self.version = len(self._versions) - 1
        self.held = list(self._versions[-1].held) if self._versions else []


def _sequences(copies: Files) -> set[int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = (pq.read_table(pa.BufferReader(content), columns=["sequence"]) for content in copies.values())
    return {
        sequence for table in tables for sequence in table["sequence"].to_pylist() if sequence is not None
    }


class DeltaTarget(DeltaTable):
    """What one worker sees of such a table: every call passes its gate."""

    def __init__(self, name: str, table: LoggedTable, seen_by: MemoryDestination):
        super().__init__(lambda: _SPARK, DeltaLocation(DeltaLocator(str(table.folder.parent)), name))
        self._files = table
        self._seen_by = seen_by
        self._planned: str | None = None

    @property
    def key(self) -> str:
        return f"memory:{self.name}"

    def shape(self) -> TableShape | None:
        found: TableShape | None = self._seen_by.gate("shape", super().shape)
        return found

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        real = super().markers
        found: TableMarkers = self._seen_by.gate("markers", lambda: real(content_hashes))
        return found

    def was_rolled_back(self, last: Receipt) -> bool:
        real = super().was_rolled_back
        found: bool = self._seen_by.gate("was_rolled_back", lambda: real(last))
        return found

    def settle(self) -> None:
        self._seen_by.gate("settle", super().settle)

    @contextmanager
    def prepare(self, plan: Plan, incoming: Any, *, for_commit: bool = True) -> Iterator[Any]:
        if for_commit:
            self._refuse_rolled_back(plan)
        self._planned = None if plan.current is None else plan.current.version
        effect: Any = SimpleNamespace(
            spark=_SPARK,
            plan=plan,
            rows=incoming,
            counts=Counts(inserted=len(incoming), total=len(incoming)),
            table_rows=len(self._files.rows),
            repair=None,
            tombstones=None,
        )
        yield _GatedLoad(LakehouseLoad(effect, self), self._seen_by.gate)

    # What the commit asks: real but for the write, and for what tests switch off.

    def latest_version(self) -> str | None:
        now = super().latest_version()
        return now if self._files.sees_moves else self._planned

    def holder_of(self, content_hashes: Collection[str]) -> Marker | None:
        return super().holder_of(content_hashes) if self._files.refuses_late else None

    def write_methods(self, effect: Any) -> tuple[WriteMethod, ...]:
        return (WriteMethod("append", "the only one here"),)

    def write(self, effect: Any, method: WriteMethod, marker: Marker) -> None:
        self._files.write(marker, effect.rows, self._seen_by.clock(), self._seen_by.ledger)

    def _frame(self, version: int, *, named: bool) -> Any:
        return SimpleNamespace(schema=_SCHEMA)


@dataclass(frozen=True)
class _GatedLoad:
    load: LakehouseLoad
    gate: Callable[[str, Callable[[], Any]], Any]
    duplicates: None = None

    @property
    def counts(self) -> Counts:
        return self.load.counts

    @property
    def table_rows(self) -> int:
        return self.load.table_rows

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.load.warnings

    def commit(self, marker: Marker) -> Commit:
        made: Commit = self.gate("commit", lambda: self.load.commit(marker))
        return made


assert tuple(column.name for column in COLUMNS) == tuple(_SCHEMA.names)
