"""Delta Lake: tables in folders below a root, tables of a Spark catalog, or one folder given outright."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.contract import Capabilities, Prepared, TableMarkers, Views, gone_back
from tallymark.destinations.delta_history import DeltaHistory
from tallymark.destinations.delta_log_files import local_folder, restored_since
from tallymark.destinations.delta_markers import DeltaMarkers
from tallymark.destinations.delta_read import CommitLog, DeltaInput, FolderLog, SparkLog
from tallymark.destinations.delta_tombstones import DeltaTombstones, no_tombstones
from tallymark.destinations.delta_write import DeltaPrepared, Target, write_error
from tallymark.destinations.spark_labels import labelled
from tallymark.destinations.spark_sql import condition, quoted, reason
from tallymark.errors import DestinationError, NotATable, Unsupported
from tallymark.model.plan import Merge, Plan
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.table import Column, TableShape

# Deletion vectors cut a small merge into a large table to about a third (docs/adr/0005).
DEFAULT_PROPERTIES = {"delta.enableDeletionVectors": "true"}

_APPEND_ONLY = "delta.appendOnly"
_COLUMN_MAPPING = "delta.columnMapping.mode"  # with it, a table can have any names
_FORBIDDEN_IN_NAMES = frozenset(" ,;{}()\n\t=")
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
    location: str
    properties: dict[str, str]


class DeltaDestination:
    capabilities = Capabilities(
        "delta",
        nested_types=True,
        schema_evolution=True,
        time_travel=True,
        sees_foreign_commits=True,
        locks_while_loading=False,
        views=False,
    )
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
        self._root = root
        self._catalog = catalog
        self.table_properties: Mapping[str, str] = DEFAULT_PROPERTIES | (properties or {})
        self._details: dict[str, _Detail] = {}
        self._known: dict[str, DeltaMarkers] = {}
        self._histories: dict[str, DeltaHistory] = {}
        self._claimed_at: dict[str, tuple[str | None, int]] = {}  # id and version that `applied` has seen
        self._forget_before: dict[str, datetime] = {}  # tables whose old tombstones are still to be removed
        self._forgot: set[str] = set()

    @property
    def _spark(self) -> SparkSession:
        """Asked for late: naming a table needs no Spark, and a run with nothing to do starts none."""
        return self._start_spark()

    def table_key(self, table: str) -> str:
        return f"delta:{self._path(table) or f'{self._catalog}.{table}'}"

    def inspect(self, table: str) -> TableShape | None:
        version = self._latest_version(table)
        if version is None:
            self._refuse_foreign_files(table)
            self._forget(table)
            return None
        detail = self._detail(table)
        schema = self._at_version(table, version).schema
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
        path = self._path(table)
        return path is not None and restored_since(path, int(last.version))

    def column_type(self, spark_type: str) -> str:
        return spark_type

    @contextmanager
    def prepare(self, plan: Plan, incoming: DataFrame, *, for_commit: bool = True) -> Iterator[Prepared]:
        """Locks nothing: a commit looks whether the table moved."""
        if for_commit:
            self._refuse_gone_back(plan)
        _refuse_odd_names(plan)
        self._refuse_expiring_transactions(plan)
        current = None if plan.current is None else self._at_version(plan.table, int(plan.current.version))
        with labelled(self._spark, plan, incoming, current, self._tombstones(plan)) as effect:
            _refuse_changes_to_append_only(plan, effect.counts)
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
        if self._root is not None:
            return f"{self._root.rstrip('/')}/{table.replace('.', '/')}"
        return table if self._catalog is None else None

    def _sql(self, table: str) -> str:
        path = self._path(table)
        if path is not None:
            return f"delta.{quoted(path)}"
        return ".".join(quoted(part) for part in [self._catalog or "", *table.split(".")])

    def _latest_version(self, table: str) -> int | None:
        history = self._history(table)
        try:
            version = history.look()
        except AnalysisException as error:
            name = condition(error)
            if name in _ABSENT:
                return None
            if name.split(".")[0] in _ANOTHER_KIND:
                raise NotATable(
                    f"{table}: there is a view or a table of another format in its place",
                    hint="choose another `table`, or convert it to Delta",
                ) from error
            raise DestinationError(f"{table}: cannot be inspected: {reason(error)}") from error
        except Exception as error:
            raise DestinationError(
                f"{table}: its Delta log cannot be read: {reason(error)}",
                hint="check that this user may read the table's folder and that its _delta_log is whole",
            ) from error
        if history.remade:
            self._forget(table)
            return self._latest_version(table)
        return version

    def _history(self, table: str) -> DeltaHistory:
        if table not in self._histories:
            self._histories[table] = DeltaHistory(self._spark, self._sql(table))
        return self._histories[table]

    def _detail(self, table: str) -> _Detail:
        """Cached until a commit that is not ours: loads change neither id nor folder nor properties."""
        known = self._details.get(table)
        later = self._history(table).after(known.version) if known is not None else []
        if known is not None and all(entry.marker is not None for entry in later):
            return known
        version = self._history(table).last_seen
        row = self._spark.sql(f"DESCRIBE DETAIL {self._sql(table)}").collect()[0]
        self._details[table] = _Detail(version, row["id"], row["location"], dict(row["properties"] or {}))
        return self._details[table]

    def _markers(self, table: str) -> DeltaMarkers:
        if table not in self._known:
            detail = self._detail(table)
            history = self._history(table)
            self._known[table] = DeltaMarkers(self._spark, history, detail.location, detail.table_id)
        return self._known[table]

    def _forget(self, table: str) -> None:
        """A table that is gone may come back as another one."""
        self._details.pop(table, None)
        self._known.pop(table, None)
        self._histories.pop(table, None)

    def _tombstones(self, plan: Plan) -> DataFrame | None:
        if not isinstance(plan.shape, Merge) or plan.shape.tombstones is None:
            return None
        wanted = plan.shape.tombstones
        if plan.current is None:
            return no_tombstones(self._spark, wanted)
        self._forget_before[plan.table] = wanted.forget_before
        place = DeltaTombstones(self._spark, self._detail(plan.table).location)
        return place.valid(wanted, self._markers(plan.table))

    def _forget_old_tombstones(self, table: str) -> None:
        """Once for each process: looking costs more than keeping a few too many."""
        before = self._forget_before.get(table)
        if before is not None and table not in self._forgot:
            self._forgot.add(table)
            DeltaTombstones(self._spark, self._detail(table).location).forget(before)

    def _target(self, plan: Plan) -> Target:
        table = plan.table
        path = self._path(table)
        if path is None:
            if plan.current is not None:
                path = self._detail(table).location
            else:
                schema = self._sql(table).rpartition(".")[0]
                self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        return Target(
            self._sql(table),
            path,
            lambda: self._latest_version(table),
            lambda: self._history(table),
            lambda: self._detail(table).location,
        )

    def _at_version(self, table: str, version: int) -> DataFrame:
        return self._spark.sql(f"SELECT * FROM {self._sql(table)} VERSION AS OF {version}")

    def _refuse_foreign_files(self, table: str) -> None:
        """Delta would happily start a table among somebody's files."""
        path = self._path(table)
        if path is None:
            return
        literal = re.sub(r"([\\*?\[\]{}])", r"\\\1", path)  # load() takes a glob
        try:
            files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal)
            found = files.select("path").limit(1).collect()
        except AnalysisException:  # nothing there
            return
        if found:
            raise NotATable(
                f"{path}: holds files that are not a Delta table, such as {found[0]['path']}",
                hint="choose another folder or `table`, or move those files away",
            )

    def _refuse_expiring_transactions(self, plan: Plan) -> None:
        """The fence lives in Delta's transaction identifiers; they must never expire."""
        name = "delta.setTransactionRetentionDuration"
        if plan.current is not None and name in plan.current.properties:
            raise Unsupported(
                f"{plan.table}: table property {name} lets the fence against late writers expire",
                hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{name}')",
            )


def _refuse_odd_names(plan: Plan) -> None:
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


def _refuse_changes_to_append_only(plan: Plan, counts: Counts) -> None:
    changed = counts.updated + counts.closed + counts.deleted
    if changed and plan.current is not None and plan.current.properties.get(_APPEND_ONLY) == "true":
        raise Unsupported(
            f"{plan.table}: the table only takes new rows ({_APPEND_ONLY}), but {changed} rows would be "
            "changed or removed",
            hint=f"use append_only or insert, or ALTER TABLE … UNSET TBLPROPERTIES ('{_APPEND_ONLY}')",
        )
