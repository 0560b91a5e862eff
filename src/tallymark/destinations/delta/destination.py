"""Delta Lake: tables in folders below a root, tables of a Spark catalog, or one folder given outright."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import Prepared, TableMarkers, Views, gone_back
from tallymark.destinations.delta import CAPABILITIES
from tallymark.destinations.delta.folder import FolderCommits, is_large, settings_at
from tallymark.destinations.delta.history import DeltaHistory, SparkCommits
from tallymark.destinations.delta.limits import (
    refuse_changes_to_append_only,
    refuse_expiring_transactions,
    refuse_odd_names,
)
from tallymark.destinations.delta.log_files import local_folder
from tallymark.destinations.delta.place import DeltaPlace
from tallymark.destinations.delta.read import CommitLog, DeltaInput, FolderLog, SparkLog
from tallymark.destinations.delta.write import DeltaPrepared, write_error
from tallymark.destinations.delta.write_methods import Target
from tallymark.destinations.lakehouse.home import refuse_foreign_files
from tallymark.destinations.lakehouse.labels import labelled
from tallymark.destinations.lakehouse.marker_copies import copies_beside
from tallymark.destinations.lakehouse.markers import DeltaMarkers
from tallymark.destinations.lakehouse.relations import keeps_rows
from tallymark.destinations.lakehouse.tombstones import DeltaTombstones
from tallymark.errors import DestinationError, NotATable, TallymarkError
from tallymark.model.plan import Merge, Plan
from tallymark.model.receipt import Receipt
from tallymark.model.table import Column, TableShape
from tallymark.spark.sql import (
    condition,
    is_embedded,
    no_rows,
    planned_for,
    quoted,
    reason,
    shares_files,
)

# Deletion vectors cut a small merge into a large table to about a third (docs/adr/0005).
DEFAULT_PROPERTIES = {"delta.enableDeletionVectors": "true"}

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
    location: str | Path  # a Path where `_folder` has one
    properties: dict[str, str]


class DeltaDestination:
    capabilities = CAPABILITIES
    views: Views | None = None

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        *,
        root: str | None = None,
        catalog: str | None = None,
        properties: dict[str, str] | None = None,
    ):
        """With neither `root` nor `catalog`, a table's name is its folder or URL."""
        self._start_spark = spark
        self._place = DeltaPlace(root, catalog)
        self._root = root
        self._catalog = catalog
        self.table_properties: Mapping[str, str] = DEFAULT_PROPERTIES | (properties or {})
        self._details: dict[str, _Detail] = {}
        self._known: dict[str, DeltaMarkers] = {}
        self._histories: dict[str, DeltaHistory] = {}
        self._frames: dict[tuple[str, bool], tuple[int, DataFrame]] = {}  # of the last version that was read
        self._claimed_at: dict[str, tuple[str | None, int]] = {}  # id and version that `applied` has seen
        self._forget_before: dict[str, datetime] = {}  # tables whose old tombstones are still to be removed

    @property
    def _spark(self) -> SparkSession:
        """Asked for late: naming a table needs no Spark, and a run with nothing to do starts none."""
        return self._start_spark()

    def table_key(self, table: str) -> str:
        return self._place.table_key(table)

    def inspect(self, table: str) -> TableShape | None:
        version = self._latest_version(table)
        if version is None:
            refuse_foreign_files(self._spark, self._path(table), self._folder(table))
            self._forget(table)
            return None
        try:
            detail = self._detail(table)
            schema = self._at_version(table, version, named=not is_embedded(self._spark)).schema
        except Exception as error:
            raise _unusable(table, error) from error
        columns = tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields)
        unique_by = self._history(table).unique_by()
        return TableShape(columns, str(version), detail.table_id, detail.properties, unique_by)

    def applied(self, table: str, content_hashes: Collection[str] | None) -> TableMarkers:
        version = self._latest_version(table)
        if version is None:
            self._forget(table)
            self._claimed_at[table] = (None, -1)
            return TableMarkers({})
        self._claimed_at[table] = (self._detail(table).table_id, version)
        return self._markers(table).find(content_hashes)

    def has_gone_back(self, table: str, last: Receipt) -> bool:
        return self._place.has_gone_back(table, last)

    def column_type(self, spark_type: str) -> str:
        return spark_type

    @contextmanager
    def prepare(
        self, plan: Plan, incoming: DataFrame, *, rows: int | None = None, for_commit: bool = True
    ) -> Iterator[Prepared]:
        """Locks nothing: a commit looks whether the table moved."""
        if for_commit:
            self._refuse_gone_back(plan)
        refuse_odd_names(plan)
        refuse_expiring_transactions(plan)
        current = None
        if plan.current is not None:
            moving = keeps_rows(self._spark, rows)
            current = self._at_version(plan.table, int(plan.current.version), named=not moving)
        tombstones = self._tombstones(plan)
        with (
            planned_for(self._spark, rows=rows),
            labelled(
                self._spark, plan, incoming, current, tombstones, rows, large_table=self._is_large(plan.table)
            ) as effect,
        ):
            refuse_changes_to_append_only(plan, effect.counts)
            yield DeltaPrepared(effect, self._target(plan))

    def _refuse_gone_back(self, plan: Plan) -> None:
        """By a RESTORE, or since it is another table by now."""
        if plan.table not in self._claimed_at:
            return
        table_id, version = self._claimed_at[plan.table]
        now = None if plan.current is None else plan.current.table_id
        if table_id not in (None, now):
            raise gone_back(plan.table)
        later = self._history(plan.table).after(version) if now is not None else []
        if any(entry.restored_to is not None for entry in later):
            raise gone_back(plan.table)

    def settle(self, table: str) -> None:
        if table in self._known or self._latest_version(table) is not None:
            self._markers(table).copy()
            self._forget_old_tombstones(table)

    def input_version(self, table: str) -> str | None:
        return self._input(table).version()

    def relation(self, table: str, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        return self._input(table).at(version, spark)

    def _input(self, table: str) -> DeltaInput:
        return DeltaInput(table, self._sql(table), self._commit_log(table))

    def _commit_log(self, table: str) -> CommitLog:
        path = self._path(table)
        folder = None if path is None else local_folder(path)
        # A path may also be one of the machine that Spark runs on, where this one has nothing of the kind.
        if folder is not None and Path(self._root or folder.parent).is_dir():
            return FolderLog(folder)
        return SparkLog(
            lambda: self._latest_version(table),
            lambda: self._history(table),
            lambda: self._detail(table).table_id,
        )

    def check(self) -> None:
        """Writes a probe table of its own and no other."""
        if self._root is None:
            self._spark.sql(f"SHOW SCHEMAS IN {quoted(self._catalog or 'spark_catalog')}").collect()
            return
        probe = f"{self._root.rstrip('/')}/_tallymark/probe"
        try:
            self._spark.range(1).write.format("delta").mode("overwrite").save(probe)
        except Exception as error:
            raise write_error(probe, error) from error

    def _path(self, table: str) -> str | None:
        return self._place.path(table)

    def _sql(self, table: str) -> str:
        path = self._path(table)
        if path is not None:
            return f"delta.{quoted(path)}"
        return ".".join(quoted(part) for part in [self._catalog or "", *table.split(".")])

    @cached_property
    def _shares_files(self) -> bool:
        return shares_files(self._spark)

    def _folder(self, table: str) -> Path | None:
        """Of a table whose log can be read without Spark. (In a URL, Spark and Python may disagree on what is
        encoded.)"""
        path = self._path(table)
        folder = None if path is None or "%" in path else local_folder(path)
        return folder if folder is not None and folder.is_absolute() and self._shares_files else None

    def _latest_version(self, table: str) -> int | None:
        history = self._history(table)
        try:
            version = history.look()
        except Exception as error:
            if isinstance(error, AnalysisException) and condition(error) in _ABSENT:
                return None
            raise _unusable(table, error) from error
        if history.remade:
            self._forget(table)
            return self._latest_version(table)
        return version

    def _history(self, table: str) -> DeltaHistory:
        if table not in self._histories:
            commits, folder = SparkCommits(self._spark, self._sql(table)), self._folder(table)
            self._histories[table] = DeltaHistory(FolderCommits(folder, commits) if folder else commits)
        return self._histories[table]

    def _detail(self, table: str) -> _Detail:
        """Cached until a commit that is not ours: loads change neither id nor folder nor properties."""
        known = self._details.get(table)
        later = self._history(table).after(known.version) if known is not None else []
        if known is not None and all(entry.marker is not None for entry in later):
            return known
        version, folder = self._history(table).last_seen, self._folder(table)
        settings = settings_at(folder, version) if folder else None
        if folder and settings:
            detail = _Detail(version, settings.table_id, folder, settings.properties)
        else:
            row = self._spark.sql(f"DESCRIBE DETAIL {self._sql(table)}").collect()[0]
            detail = _Detail(version, row["id"], folder or row["location"], dict(row["properties"] or {}))
        self._details[table] = detail
        return detail

    def _markers(self, table: str) -> DeltaMarkers:
        if table not in self._known:
            detail = self._detail(table)
            history = self._history(table)
            copies = copies_beside(self._spark, detail.location, detail.table_id)
            self._known[table] = DeltaMarkers(self._spark, history, copies, detail.table_id)
        return self._known[table]

    def _forget(self, table: str) -> None:
        """A table that is gone may come back as another one."""
        self._details.pop(table, None)
        self._known.pop(table, None)
        self._histories.pop(table, None)
        for named in (True, False):
            self._frames.pop((table, named), None)

    def _tombstones(self, plan: Plan) -> DataFrame | None:
        if not isinstance(plan.shape, Merge) or plan.shape.tombstones is None:
            return None
        wanted = plan.shape.tombstones
        if plan.current is None:
            return no_rows(self._spark, wanted.columns)
        self._forget_before[plan.table] = wanted.forget_before
        place = DeltaTombstones(self._spark, self._detail(plan.table).location)
        return place.valid(wanted, self._markers(plan.table))

    def _forget_old_tombstones(self, table: str) -> None:
        if table in self._forget_before:
            place = DeltaTombstones(self._spark, self._detail(table).location)
            place.forget(self._forget_before.pop(table))

    def _target(self, plan: Plan) -> Target:
        table = plan.table
        path = self._path(table)
        if path is None:
            if plan.current is not None:
                path = str(self._detail(table).location)
            else:
                schema = self._sql(table).rpartition(".")[0]
                self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        return Target(
            self._sql(table),
            path,
            lambda: self._latest_version(table),
            lambda: self._history(table),
            lambda: self._folder(table) or self._path(table) or self._detail(table).location,
        )

    def _at_version(self, table: str, version: int, *, named: bool) -> DataFrame:
        """Kept from `inspect` to `prepare`. One that is named costs Delta a second look at its log; rows that
        are kept as rows need no name, since nothing is written if the table moves before the commit."""
        place = (table, named)
        if self._frames.get(place, (None,))[0] != version:
            at = f" VERSION AS OF {version}" if named else ""
            self._frames[place] = (version, self._spark.sql(f"SELECT * FROM {self._sql(table)}{at}"))
        return self._frames[place][1]

    def _is_large(self, table: str) -> bool:
        folder = self._folder(table)
        return folder is not None and is_large(folder)


def _unusable(table: str, error: Exception) -> TallymarkError:
    if not isinstance(error, AnalysisException):
        return DestinationError(
            f"{table}: its Delta log cannot be read: {reason(error)}",
            hint="check that this user may read the table's folder and that its _delta_log is whole",
        )
    if condition(error).split(".")[0] in _ANOTHER_KIND:
        return NotATable(
            f"{table}: there is a view or a table of another format in its place",
            hint="choose another `table`, or convert it to Delta",
        )
    return DestinationError(f"{table}: cannot be inspected: {reason(error)}")
