"""One Delta table: what is known of it, kept for as long as nobody else changes the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import (
    ArrowRows,
    Incoming,
    PreparedLoad,
    SparkRows,
    TableMarkers,
    UnmarkedLoad,
    Views,
    WriteMethod,
    rolled_back,
)
from tallymark.destinations.declaration import Caution
from tallymark.destinations.delta import CAPABILITIES, write
from tallymark.destinations.delta.durable import make_durable
from tallymark.destinations.delta.location import DeltaLocation, DeltaLocator, cautions_for
from tallymark.destinations.delta.log import (
    FEW_COMMITS,
    DeltaHistory,
    FileCommits,
    SparkCommits,
    is_large,
    local_folder,
    settings_at,
)
from tallymark.destinations.delta.read import DeltaInput, FileLog, SparkLog
from tallymark.destinations.delta.transactions import last_transaction
from tallymark.destinations.lakehouse.commit import FoundCommit, LakehouseLoad, write_error
from tallymark.destinations.lakehouse.history import HistoryEntry
from tallymark.destinations.lakehouse.home import Folder, refuse_foreign_files, refuse_nested
from tallymark.destinations.lakehouse.labels import Labelled, labelled
from tallymark.destinations.lakehouse.marker_copies import copies_in
from tallymark.destinations.lakehouse.markers import LakehouseMarkers
from tallymark.destinations.lakehouse.relations import keeps_rows
from tallymark.destinations.lakehouse.tombstones import TombstoneStore
from tallymark.errors import DestinationError, NotATable, TallymarkError, Unsupported
from tallymark.model.plan import Merge, Plan
from tallymark.model.receipt import Counts, Marker, Receipt
from tallymark.model.table import Column, TableShape
from tallymark.model.types import quoted
from tallymark.spark.failures import condition, reason
from tallymark.spark.frames import no_rows, planned_for
from tallymark.spark.sessions import is_embedded, shares_files

_ABSENT = {
    "DELTA_TABLE_ONLY_OPERATION",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
}
_ANOTHER_KIND = {"DELTA_ONLY_OPERATION", "EXPECT_TABLE_NOT_VIEW"}


@dataclass(frozen=True)
class _Detail:
    version: int  # of the table when it was read
    table_id: str
    home: Folder
    properties: dict[str, str]


@dataclass(frozen=True)
class _Claimed:
    """The table as `markers` saw it."""

    table_id: str | None  # None if there was no table
    version: int = -1


@dataclass
class _Known:
    """Read once, forgotten when another table takes the place of this one."""

    history: DeltaHistory
    detail: _Detail | None = None
    synced_through: int = -1  # commits up to here are durable, as far as they are ours
    markers: LakehouseMarkers | None = None
    frames: dict[bool, tuple[int, DataFrame]] = field(default_factory=dict)  # by whether they name a version


class DeltaTable:
    """Spark is asked for late: naming a table needs none, and a run with nothing to do starts none."""

    def __init__(self, start_spark: Callable[[], SparkSession], location: DeltaLocation):
        self._start_spark = start_spark
        self._at = location
        self._remembered: _Known | None = None
        self._claimed: _Claimed | None = None  # None if `markers` was not called
        self._was_replaced = False  # since `markers` was called
        self._forget_before: datetime | None = None  # tombstones older than this are removed by `settle`

    @property
    def name(self) -> str:
        return self._at.table

    @property
    def key(self) -> str:
        return self._at.key

    def was_rolled_back(self, last: Receipt) -> bool:
        return self._at.locator.was_rolled_back(self.name, last)

    def shape(self) -> TableShape | None:
        version = self._version()
        if version is None:
            if self._at.path is not None:
                home = Folder(self._at.path, self._shared_folder)
                refuse_nested(self._spark, home)
                refuse_foreign_files(self._spark, home)
            self._remembered = None
            return None
        try:
            detail = self._detail()
            schema = self._frame(version, named=not is_embedded(self._spark)).schema
        except Exception as error:
            raise self._unusable(error) from error
        columns = tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields)
        unique_by = self._known.history.unique_by()
        return TableShape(columns, str(version), detail.table_id, detail.properties, unique_by)

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        version = self._version()
        self._was_replaced = False
        if version is None:
            self._remembered = None
            self._claimed = _Claimed(None)
            return TableMarkers({})
        self._claimed = _Claimed(self._detail().table_id, version)
        found = self._markers().find(content_hashes)
        self._sync(self._markers().fresh())  # a worker that died after its commit may not have done so
        return found if self._markers().reaches_copies() else self._with_unmarked(found)

    @contextmanager
    def prepare(self, plan: Plan, incoming: Incoming, *, for_commit: bool = True) -> Iterator[PreparedLoad]:
        """Locks nothing: the commit checks whether the table moved."""
        rows = _spark_rows(incoming)
        if for_commit:
            self._refuse_rolled_back(plan)
        refuse_odd_names(plan)
        refuse_expiring_transactions(plan)
        current = None
        if plan.current is not None:
            pinned = not keeps_rows(self._spark, rows.count)
            current = self._frame(int(plan.current.version), named=pinned)
        tombstones = self._tombstones(plan)
        with (
            planned_for(self._spark, rows=rows.count),
            labelled(
                self._spark, plan, rows.frame, current, tombstones, rows.count, large_table=self.is_large()
            ) as effect,
        ):
            refuse_changes_to_append_only(plan, effect.counts)
            yield LakehouseLoad(effect, self)

    def settle(self) -> None:
        if self._version() is None:
            return
        self._sync(self._markers().fresh())
        self._markers().copy()
        if self._forget_before is not None:
            TombstoneStore(self._spark, self._detail().home).forget(self._forget_before)
            self._forget_before = None

    def input_version(self) -> str | None:
        return self._input().version()

    def read(self, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        return self._input().at(version, spark)

    # What the commit asks (`LakehouseTable`).

    @property
    def home(self) -> Folder | None:
        """None for a table of a catalog that is not made yet."""
        if self._at.path is not None:
            return Folder(self._at.path, self._shared_folder)
        return None if self._version() is None else self._detail().home

    @property
    def cautions(self) -> tuple[Caution, ...]:
        place = self._at.path or (self.home.url if self.home is not None else "")
        return cautions_for(place, single_writer=self._at.locator.single_writer)

    def latest_version(self) -> str | None:
        version = self._version()
        if self._was_replaced:
            raise rolled_back(self.name)
        return None if version is None else str(version)

    def holder_of(self, content_hashes: Collection[str]) -> Marker | None:
        return self._known.history.holding(content_hashes)

    def write_methods(self, effect: Labelled) -> tuple[WriteMethod, ...]:
        return write.write_methods(effect)

    def write(self, effect: Labelled, method: WriteMethod, marker: Marker) -> None:
        path = self._at.path
        if path is None and effect.plan.current is not None:
            path = self._detail().home.url
        elif path is None:
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self._at.schema_sql}")
        write.write(effect, method, marker, write.WriteTarget(self._at.sql, path))

    def find_commit(self, effect: Labelled, method: WriteMethod, marker: Marker) -> FoundCommit | None:
        planned = -1 if effect.plan.current is None else int(effect.plan.current.version)
        history = self._known.history
        try:
            history.read()
        except AnalysisException as error:
            if self._at.path is None or condition(error) not in _ABSENT:
                raise
            return None  # without a log nothing is committed; a catalog may just not know of it
        ours = (e for e in history.after(planned) if e.marker and e.marker.batch_id == marker.batch_id)
        entry = next(ours, None)
        if entry is None:
            return None
        disagreement = write.disagreement(entry, effect, method.name, planned)
        return FoundCommit(str(entry.version), entry.committed_at, disagreement)

    def make_durable(self, version: str) -> None:
        self._sync(self._known.history.after(max(self._known.synced_through, int(version) - FEW_COMMITS)))

    def refusal(self, error: Exception) -> TallymarkError | None:
        return write.refusal(self.name, error)

    def is_conflict(self, error: Exception) -> bool:
        return write.is_conflict(error)

    # What is known of the table.

    @property
    def _spark(self) -> SparkSession:
        return self._start_spark()

    @property
    def _shared_folder(self) -> Path | None:
        """The table's folder, where this process sees the same files as Spark."""
        folder = self._at.folder
        return folder if folder is not None and shares_files(self._spark) else None

    @property
    def _known(self) -> _Known:
        if self._remembered is None:
            commits, folder = SparkCommits(self._spark, self._at.sql), self._shared_folder
            self._remembered = _Known(DeltaHistory(FileCommits(folder, commits) if folder else commits))
        return self._remembered

    def _version(self) -> int | None:
        """The latest version now; None if there is no table."""
        history = self._known.history
        try:
            version = history.latest_version()
        except Exception as error:
            if isinstance(error, AnalysisException) and condition(error) in _ABSENT:
                return None
            raise self._unusable(error) from error
        if history.recreated:
            self._remembered, self._was_replaced = None, True
            return self._version()
        return version

    def _detail(self) -> _Detail:
        """Kept until a commit that is not ours: loads change neither id nor folder nor properties."""
        known = self._known
        if known.detail is not None:
            later = known.history.after(known.detail.version)
            if all(entry.marker is not None for entry in later):
                return known.detail
        version, folder = known.history.last_seen, self._shared_folder
        settings = settings_at(folder, version) if folder else None
        if folder and settings:
            known.detail = _Detail(version, settings.table_id, Folder.at(folder), settings.properties)
        else:
            row = self._spark.sql(f"DESCRIBE DETAIL {self._at.sql}").collect()[0]
            home = Folder.at(folder) if folder else Folder(row["location"])
            known.detail = _Detail(version, row["id"], home, dict(row["properties"] or {}))
        return known.detail

    def _markers(self) -> LakehouseMarkers:
        known = self._known
        if known.markers is None:
            detail = self._detail()
            copies = copies_in(self._spark, detail.home, detail.table_id)
            known.markers = LakehouseMarkers(self._spark, known.history, copies, detail.table_id)
        return known.markers

    def _sync(self, entries: Sequence[HistoryEntry]) -> None:
        """Our commits among these. Of those of others, only the log, without which ours could not be read."""
        known = self._known
        new = [entry for entry in entries if entry.version > known.synced_through]
        ours = [entry.version for entry in new if entry.marker is not None]
        folder = self._local_folder if ours and self._at.locator.durable else None
        if folder is None:
            return
        before = [entry.version for entry in new if entry.marker is None and entry.version < ours[-1]]
        try:
            make_durable(folder, ours, log_only=before)
        except (OSError, ValueError) as error:
            raise DestinationError(
                f"{self.name}: its commits cannot be written to the disk for good: {error}",
                hint="check the disk, then run again",
            ) from error
        known.synced_through = ours[-1]

    @property
    def _local_folder(self) -> Path | None:
        """As `_shared_folder`, and also that of a table in a catalog."""
        if self._at.path is not None or not shares_files(self._spark):
            return self._shared_folder
        found = local_folder(self._detail().home.url)
        return found if found is not None and found.is_dir() else None

    def _with_unmarked(self, found: TableMarkers) -> TableMarkers:
        """The log was cleaned up beyond the last copied marker. After a RESTORE it is not known whether the
        table still holds a load from before it."""
        try:
            last = last_transaction(self._spark, self._detail().home)
        except Exception as error:
            raise self._unusable(error) from error
        if last is None or last.sequence <= found.last_sequence:
            return found
        first, *_ = fresh = self._markers().fresh()
        if any(entry.restored_to is not None for entry in fresh):
            return replace(found, last_sequence=last.sequence)
        load = UnmarkedLoad(last.sequence, str(first.version - 1), last.updated_at or first.committed_at)
        return replace(found, last_sequence=load.sequence, held_sequence=load.sequence, unmarked=load)

    def _frame(self, version: int, *, named: bool) -> DataFrame:
        """Kept from `shape` to `prepare`. One that names its version makes Delta read its log twice. Rows
        that are checkpointed need no name, since nothing is written if the table moves before the commit."""
        frames = self._known.frames
        if named not in frames or frames[named][0] != version:
            at = f" VERSION AS OF {version}" if named else ""
            frames[named] = (version, self._spark.sql(f"SELECT * FROM {self._at.sql}{at}"))
        return frames[named][1]

    def _tombstones(self, plan: Plan) -> DataFrame | None:
        if not isinstance(plan.shape, Merge) or plan.shape.tombstones is None:
            return None
        wanted = plan.shape.tombstones
        if plan.current is None:
            return no_rows(self._spark, wanted.columns)
        self._forget_before = wanted.forget_before
        return TombstoneStore(self._spark, self._detail().home).valid(wanted, self._markers())

    def _refuse_rolled_back(self, plan: Plan) -> None:
        """By a RESTORE, or because another table or another state of its log has taken its place."""
        if self._claimed is None:
            return
        now = None if plan.current is None else plan.current.table_id
        if self._claimed.table_id not in (None, now) or (self._was_replaced and self._claimed.table_id):
            raise rolled_back(plan.table)
        later = self._known.history.after(self._claimed.version) if now is not None else []
        if any(entry.restored_to is not None for entry in later):
            raise rolled_back(plan.table)

    def _input(self) -> DeltaInput:
        folder = self._at.readable_folder
        log = FileLog(folder) if folder is not None else SparkLog(self)
        return DeltaInput(self.name, self._at.sql, log)

    def _unusable(self, error: Exception) -> TallymarkError:
        if not isinstance(error, AnalysisException):
            return DestinationError(
                f"{self.name}: its Delta log cannot be read: {reason(error)}",
                hint="check that this user may read the table's folder and that its _delta_log is whole",
            )
        if condition(error).split(".")[0] in _ANOTHER_KIND:
            return NotATable(
                f"{self.name}: there is a view or a table of another format in its place",
                hint="choose another `table`, or convert it to Delta",
            )
        return DestinationError(f"{self.name}: cannot be inspected: {reason(error)}")

    # What reading it as an input asks (`read.SparkLog`).

    def newest_version(self) -> int | None:
        return self._version()

    def entry_of(self, version: int) -> HistoryEntry | None:
        entries = self._known.history.after(version - 1)
        return next((entry for entry in entries if entry.version == version), None)

    def table_id(self) -> str:
        return self._detail().table_id

    def is_large(self) -> bool:
        """Whether reading all its columns takes longer than one more query."""
        folder = self._shared_folder
        return folder is not None and is_large(folder)


def _spark_rows(incoming: Incoming) -> SparkRows:
    match incoming:
        case SparkRows():
            return incoming
        case ArrowRows():
            raise Unsupported("Delta tables are written by Spark, which the rows have left")


_APPEND_ONLY = "delta.appendOnly"
_COLUMN_MAPPING = "delta.columnMapping.mode"  # with it, a table can have any names
_EXPIRING_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_FORBIDDEN_IN_NAMES = frozenset(" ,;{}()\n\t=")


def refuse_odd_names(plan: Plan) -> None:
    properties = plan.table_properties if plan.current is None else plan.current.properties
    if properties.get(_COLUMN_MAPPING, "none") != "none":
        return
    for column in plan.columns:
        if bad := sorted(_FORBIDDEN_IN_NAMES & set(column.name)):
            raise Unsupported(
                f"column {column.name!r}: a Delta table cannot hold a name with {' '.join(map(repr, bad))}",
                hint=f"rename it by a rule under `columns`: {{from: {column.name!r}, name: …}}; or set the "
                f"table property {_COLUMN_MAPPING} to name",
                facts={"column": column.name},
            )


def refuse_expiring_transactions(plan: Plan) -> None:
    """The fence lives in Delta's transaction identifiers; they must never expire."""
    if plan.current is not None and _EXPIRING_TRANSACTIONS in plan.current.properties:
        raise Unsupported(
            f"{plan.table}: table property {_EXPIRING_TRANSACTIONS} lets the fence against late writers "
            "expire",
            hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_EXPIRING_TRANSACTIONS}')",
        )


def refuse_changes_to_append_only(plan: Plan, counts: Counts) -> None:
    changed = counts.updated + counts.closed + counts.deleted
    if changed and plan.current is not None and plan.current.properties.get(_APPEND_ONLY) == "true":
        raise Unsupported(
            f"{plan.table}: the table only takes new rows ({_APPEND_ONLY}), but {changed} rows would be "
            "changed or removed",
            hint=f"use append_only or insert, or ALTER TABLE … UNSET TBLPROPERTIES ('{_APPEND_ONLY}')",
        )


# Deletion vectors cut a small merge into a large table to about a third (docs/adr/0005).
DEFAULT_PROPERTIES = {"delta.enableDeletionVectors": "true"}


class DeltaDestination:
    capabilities = CAPABILITIES
    views: Views | None = None

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        *,
        root: str | None = None,
        catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
        durable: bool = True,
        single_writer: bool = False,
    ):
        """With neither `root` nor `catalog`, a table's name is its folder or URL."""
        self._start_spark = spark
        self._locator = DeltaLocator(root, catalog, single_writer=single_writer, durable=durable)
        self.table_properties: Mapping[str, str] = DEFAULT_PROPERTIES | dict(properties or {})

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self._start_spark, self._locator.at(name))

    def column_type(self, spark_type: str) -> str:
        return spark_type

    def check(self) -> None:
        """Writes a probe table of its own and touches no other."""
        spark, root = self._start_spark(), self._locator.root
        if root is None:
            catalog = self._locator.catalog or "spark_catalog"
            spark.sql(f"SHOW SCHEMAS IN {quoted(catalog)}").collect()
            return
        probe = f"{root.rstrip('/')}/_tallymark/probe"
        try:
            spark.range(1).write.format("delta").mode("overwrite").save(probe)
        except Exception as error:
            raise write_error(probe, error) from error
