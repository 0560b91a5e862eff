"""One Iceberg table: what is known of it, as of the metadata that was read last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import (
    ArrowRows,
    Incoming,
    PreparedLoad,
    SparkRows,
    TableMarkers,
    Views,
    WriteMethod,
    rolled_back,
)
from tallymark.destinations.declaration import Caution
from tallymark.destinations.iceberg import CAPABILITIES, IcebergDestinationConfig, write
from tallymark.destinations.iceberg.catalog import IcebergLocator
from tallymark.destinations.iceberg.markers import IcebergMarkers, copies_of
from tallymark.destinations.iceberg.metadata import (
    EMPTY,
    Snapshot,
    SparkMetadata,
    TableMetadata,
    local_path,
    make_durable,
    unreadable,
)
from tallymark.destinations.iceberg.read import IcebergInput
from tallymark.destinations.iceberg.types import stored_as
from tallymark.destinations.lakehouse.commit import FoundCommit, LakehouseLoad, write_error
from tallymark.destinations.lakehouse.home import Folder
from tallymark.destinations.lakehouse.labels import Labelled, labelled
from tallymark.destinations.lakehouse.tombstones import TombstoneStore
from tallymark.errors import DestinationError, Fenced, NotATable, TallymarkError, Unsupported
from tallymark.model.plan import Merge, Plan
from tallymark.model.receipt import Marker, Receipt
from tallymark.model.table import Column, TableShape
from tallymark.model.types import quoted
from tallymark.spark.failures import condition, reason
from tallymark.spark.frames import no_rows, planned_for
from tallymark.spark.sessions import shares_files

_SNAPSHOTS_OF_A_LOAD = 2  # at most: of its deletes and of its rows
_OLDEST_FORMAT = 2  # row-level deletes, and numbers of snapshots that only grow
_TAKEN = ("TABLE_OR_VIEW_ALREADY_EXISTS", "TABLE_ALREADY_EXISTS")
_LOST_RACE = ("CommitFailedException", "AlreadyExistsException", "SQLITE_BUSY", "Cannot fast-forward")


@dataclass(frozen=True)
class _SeenByClaim:
    """The table as `markers` saw it; None if there was none."""

    metadata: TableMetadata | None


class IcebergTable:
    """Spark is asked for late: naming a table needs none, and a run with nothing to do starts none."""

    def __init__(
        self,
        start_spark: Callable[[], SparkSession],
        locator: IcebergLocator,
        name: str,
        layout: write.IcebergLayout,
    ):
        self._start_spark = start_spark
        self._at = locator
        self._name = name
        self._layout = layout
        self._metadata: TableMetadata | None = None  # as it was read last
        self._known_markers: tuple[TableMetadata, IcebergMarkers] | None = None
        self._claimed: _SeenByClaim | None = None  # None if `markers` was not called
        self._forget_before: datetime | None = None  # tombstones older than this are removed by `settle`

    @property
    def name(self) -> str:
        return self._name

    @property
    def key(self) -> str:
        return self._at.key(self._name)

    def was_rolled_back(self, last: Receipt) -> bool:
        return self._at.was_rolled_back(self._name, last)

    def shape(self) -> TableShape | None:
        metadata = self._read()
        if metadata is None:
            return None
        if metadata.format_version < _OLDEST_FORMAT:
            raise Unsupported(
                f"{self.name}: the table has format version {metadata.format_version}, which cannot hold "
                "deleted rows",
                hint=f"ALTER TABLE {self._sql} SET TBLPROPERTIES ('format-version' = '{_OLDEST_FORMAT}')",
            )
        try:
            fields = self._spark.sql(f"SELECT * FROM {self._sql}").schema.fields
        except Exception as error:
            raise self._unusable(error) from error
        columns = tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in fields)
        properties = dict(metadata.properties)
        return TableShape(columns, metadata.version, metadata.table_id, properties, metadata.unique_by)

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        metadata = self._read()
        if metadata is not None:
            metadata = self._with_finished_types(metadata)
        self._claimed = _SeenByClaim(metadata)
        if metadata is None:
            return TableMarkers({})
        markers = self._markers(metadata)
        if uncopied := markers.oldest_uncopied():  # a worker that died after its commit
            self.make_durable(uncopied)
        return markers.find(content_hashes)

    @contextmanager
    def prepare(self, plan: Plan, incoming: Incoming, *, for_commit: bool = True) -> Iterator[PreparedLoad]:
        """Locks nothing: main is only moved if it is still where the plan saw it."""
        rows = _spark_rows(incoming)
        metadata = self._metadata
        if for_commit:
            self._refuse_rolled_back(plan)
        current = None if plan.current is None else self._current(plan, plan.current)
        tombstones = self._tombstones(plan)
        with (
            planned_for(self._spark, rows=rows.count),
            labelled(
                self._spark,
                plan,
                rows.frame,
                current,
                tombstones,
                rows.count,
                large_table=metadata is not None and metadata.is_large,
            ) as effect,
        ):
            yield LakehouseLoad(effect, self)

    def settle(self) -> None:
        metadata = self._read()
        if metadata is None:
            return
        markers = self._markers(metadata)
        markers.copy()
        write.drop_dead_branches(self._spark, self._sql, metadata, markers.find(()).last_fence)
        if self._forget_before is not None:
            TombstoneStore(self._spark, self._folder(metadata)).forget(self._forget_before)
            self._forget_before = None

    def input_version(self) -> str | None:
        return self._input.version()

    def read(self, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        self._at.configure(spark)
        return self._input.at(version, spark)

    # What the commit asks (`LakehouseTable`).

    @property
    def home(self) -> Folder | None:
        """None if only the catalog knows where the table will be."""
        if self._metadata is not None:
            return self._folder(self._metadata)
        planned = self._at.home(self.name)
        return None if planned is None else self._at_place(planned)

    cautions: tuple[Caution, ...] = ()

    def latest_version(self) -> str | None:
        metadata = self._read()
        return None if metadata is None else metadata.version

    def holder_of(self, content_hashes: Collection[str]) -> Marker | None:
        if self._metadata is None:
            return None
        found = self._markers(self._metadata).find(content_hashes).by_hash
        return next((applied.marker for applied in found.values()), None)

    def write_methods(self, effect: Labelled) -> tuple[WriteMethod, ...]:
        return write.write_methods(effect, None if effect.plan.current is None else self._metadata)

    def write(self, effect: Labelled, method: WriteMethod, marker: Marker) -> None:
        before = self._metadata
        if before is not None:
            self._refuse_used_sequence(before, marker)
        namespaces = tuple(self._at.namespaces(self.name))
        target = write.IcebergTarget(self._at.name, self._sql, self.name, namespaces, self._layout, before)
        write.write(effect, method, marker, target)

    def find_commit(self, effect: Labelled, method: WriteMethod, marker: Marker) -> FoundCommit | None:
        planned = None if effect.plan.current is None else effect.plan.current.version
        metadata = self._read()
        ours: list[Snapshot] = []
        for snapshot in metadata.ancestors if metadata is not None else ():
            if str(snapshot.id) == planned:
                break
            if ours or (snapshot.marker is not None and snapshot.marker.batch_id == marker.batch_id):
                ours.append(snapshot)
        if not ours:
            return None
        disagreement = write.disagreement(effect, method.name, ours)
        return FoundCommit(str(ours[0].id), ours[0].committed_at, disagreement)

    def make_durable(self, version: str) -> None:
        metadata, home = self._metadata, self.home
        if metadata is None or home is None or home.local is None:
            return
        numbers = [str(snapshot.id) for snapshot in metadata.ancestors]
        if version not in numbers:
            return
        planned = metadata.ancestors[numbers.index(version) + _SNAPSHOTS_OF_A_LOAD :]
        since = planned[0].committed_at.timestamp() if planned else 0
        try:
            make_durable(home.local, int(since * 10**9))
        except OSError as error:
            raise DestinationError(
                f"{self.name}: its commits cannot be written to the disk for good: {error}",
                hint="check the disk, then run again",
            ) from error

    def refusal(self, error: Exception) -> TallymarkError | None:
        return error if isinstance(error, Fenced | Unsupported) else None

    def is_conflict(self, error: Exception) -> bool:
        return condition(error) in _TAKEN or any(name in str(error) for name in _LOST_RACE)

    # What is known of the table.

    @property
    def _spark(self) -> SparkSession:
        spark = self._start_spark()
        self._at.configure(spark)
        return spark

    @cached_property
    def _sql(self) -> str:
        return self._at.sql(self.name)

    def _read(self) -> TableMetadata | None:
        self._metadata = self._latest()
        return self._metadata

    def _latest(self) -> TableMetadata | None:
        files = self._at.files(self.name)
        try:
            if files is not None and files.is_reachable() and shares_files(self._start_spark()):
                return files.latest()
            return SparkMetadata(lambda: self._spark, self._sql).latest()
        except TallymarkError:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _with_finished_types(self, metadata: TableMetadata) -> TableMetadata | None:
        stand_ins = write.unfinished_types(metadata)
        if stand_ins is None:
            write.drop_stand_ins(self._spark, self._sql, metadata)
        elif stand_ins:
            write.finish_types(self._spark, self._sql, stand_ins)
        else:
            return metadata
        return self._read()

    def _folder(self, metadata: TableMetadata) -> Folder:
        return self._at_place(metadata.location)

    def _at_place(self, place: str) -> Folder:
        local = local_path(place)
        shared = local is not None and shares_files(self._start_spark())
        return Folder(place, local if shared else None)

    def _markers(self, metadata: TableMetadata) -> IcebergMarkers:
        known = self._known_markers
        if known is not None and known[0] is metadata:
            return known[1]
        if known is not None and known[0].table_id == metadata.table_id:
            made = known[1].with_metadata(metadata)
        else:
            copies = copies_of(self._spark, self._folder(metadata), metadata.table_id)
            made = IcebergMarkers(self._spark, metadata, copies)
        self._known_markers = (metadata, made)
        return made

    def _current(self, plan: Plan, shape: TableShape) -> DataFrame:
        """The columns that the table has now. Read at its version: one that another commit brings meanwhile
        would be labelled too. (A column that was renamed since that version has its old name there; then
        what main is at now is read, and a commit in between is found before main is moved.)"""
        metadata = self._metadata
        if shape.version == EMPTY:
            return no_rows(self._spark, shape.columns)
        head = metadata.snapshots.get(int(shape.version)) if metadata is not None else None
        pinned = head is not None and metadata is not None and head.schema_id == metadata.schema_id
        at = f" VERSION AS OF {shape.version}" if pinned else ""
        return self._spark.sql(f"SELECT * FROM {self._sql}{at}")

    def _tombstones(self, plan: Plan) -> DataFrame | None:
        if not isinstance(plan.shape, Merge) or plan.shape.tombstones is None:
            return None
        wanted = plan.shape.tombstones
        if plan.current is None or self._metadata is None:
            return no_rows(self._spark, wanted.columns)
        self._forget_before = wanted.forget_before
        metadata = self._metadata
        return TombstoneStore(self._spark, self._folder(metadata)).valid(wanted, self._markers(metadata))

    def _refuse_rolled_back(self, plan: Plan) -> None:
        """Main no longer holds what `markers` saw, or another table is in its place."""
        if self._claimed is None or self._claimed.metadata is None:
            return
        claimed, now = self._claimed.metadata, self._metadata
        if now is None or plan.current is None or claimed.table_id != now.table_id:
            raise rolled_back(plan.table)
        held = {snapshot.id for snapshot in now.ancestors}
        if claimed.head is not None and claimed.head not in held and claimed.head in now.snapshots:
            raise rolled_back(plan.table)

    def _refuse_used_sequence(self, before: TableMetadata, marker: Marker) -> None:
        """What main is at when it is moved is what this looks at."""
        last = self._markers(before).find(()).last_sequence
        if last >= marker.sequence:
            raise Fenced(
                f"{self.name}: the commit of batch {marker.batch_id} was refused, since a newer writer has "
                f"used sequence {last}; nothing was written",
                hint="run again: the batch is claimed again",
            )

    @property
    def _input(self) -> IcebergInput:
        return IcebergInput(self.name, self._sql, self._latest_without_spark)

    def _latest_without_spark(self) -> TableMetadata | None:
        files = self._at.files(self.name)
        return files.latest() if files is not None and files.is_reachable() else self._latest()

    def _unusable(self, error: Exception) -> TallymarkError:
        if isinstance(error, AnalysisException) and "VIEW" in condition(error):
            return NotATable(
                f"{self.name}: there is a view in its place", hint="choose another `table`, or drop the view"
            )
        if isinstance(error, OSError | ValueError | KeyError):
            return unreadable(self.name, error)
        return DestinationError(
            f"{self.name}: cannot be inspected: {reason(error)}",
            hint="check the catalog's `uri` and `warehouse`, and that this user may read the table",
        )


def _spark_rows(incoming: Incoming) -> SparkRows:
    match incoming:
        case SparkRows():
            return incoming
        case ArrowRows():
            raise Unsupported("Iceberg tables are written by Spark, which the rows have left")


class IcebergDestination:
    capabilities = CAPABILITIES
    views: Views | None = None

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        locator: IcebergLocator,
        options: IcebergDestinationConfig,
    ):
        self._start_spark = spark
        self._locator = locator
        self._options = options
        self.table_properties: Mapping[str, str] = write.properties_of(
            options.properties, options.format_version, options.write_mode
        )

    def table(self, name: str) -> IcebergTable:
        given = self._options.tables.get(name)
        layout = write.IcebergLayout()
        if given is not None:
            layout = write.IcebergLayout(
                write.partition_sql(given.partition_by), write.sort_sql(given.sort_by), given.properties
            )
        return IcebergTable(self._start_spark, self._locator, name, layout)

    def column_type(self, spark_type: str) -> str:
        return stored_as(spark_type)

    def check(self) -> None:
        """Asks the catalog, and writes a file beside the tables if their place is local."""
        spark = self._start_spark()
        self._locator.configure(spark)
        try:
            spark.sql(f"SHOW NAMESPACES IN {quoted(self._locator.name)}").collect()
            _write_probe(local_path(self._locator.warehouse))
        except Exception as error:
            raise write_error(f"catalog {self._locator.name}", error) from error


def _write_probe(warehouse: Path | None) -> None:
    if warehouse is not None:
        warehouse.mkdir(parents=True, exist_ok=True)
        probe = warehouse / ".tallymark-probe"
        probe.touch()
        probe.unlink()
