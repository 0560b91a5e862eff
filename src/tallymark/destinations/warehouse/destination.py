"""A database as a destination: it labels and writes by itself. Engines differ in `engine.Engine` alone.

One load (`prepare`, then `commit`) takes one session:

1. Connect. Copy the rows of the batch into a temporary table, in the table's types. This takes longest, so
   the table is not locked yet.
2. Begin the transaction; for a commit, lock the table against other writers. Raise TableMoved if the table is
   no longer what the plan saw. From here on nobody else changes it, or the engine notices at the commit.
3. Compute refusals, labels and counts inside the database.
4. `commit` (prepared.py). Without it the session is rolled back: nothing is durable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallymark.destinations.contract import Incoming, PreparedLoad, TableMarkers, Views, rolled_back
from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.warehouse.engine import (
    CatalogEntry,
    Engine,
    Session,
    TableName,
    qualified_name,
    refuse_long_name,
)
from tallymark.destinations.warehouse.labels import compute_effect
from tallymark.destinations.warehouse.load_context import STAGED, LoadContext
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.destinations.warehouse.prepared import WarehouseLoad
from tallymark.destinations.warehouse.read import exported_rows, input_version
from tallymark.destinations.warehouse.transfer import rows_to_stage
from tallymark.destinations.warehouse.views import WarehouseViews
from tallymark.errors import (
    CountsDoNotBalance,
    DestinationError,
    NotATable,
    TableMoved,
    TallymarkError,
)
from tallymark.model.plan import Plan
from tallymark.model.receipt import Receipt
from tallymark.model.table import TableShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class WarehouseTable:
    name: str
    engine: Engine
    _claimed_sequence: int = 0  # the sequence that `markers` returned last

    @property
    def key(self) -> str:
        name = self.engine.qualify(self.name)
        inside = name.key if name.schema is None else f"{name.schema}.{name.key}"
        return f"{self.engine.capabilities.name}:{self.engine.database}:{inside}"

    def was_rolled_back(self, last: Receipt) -> bool:
        try:
            return self.markers(()).held_sequence < last.sequence
        except TallymarkError:  # busy or unreachable: a run with nothing to load need not fail
            return False

    def shape(self) -> TableShape | None:
        name = self._qualified()
        with self.engine.session(writes=False) as session:
            entry = self._checked_entry(session, name)
            return None if entry is None else _shape(session, name, entry)

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        name = self._qualified()
        found = TableMarkers({})
        with self.engine.session(writes=False) as session:
            entry = session.describe(name)
            if entry is not None:
                found = MarkerTables(session, name, entry.table_id).find(content_hashes)
        self._claimed_sequence = found.held_sequence
        return found

    @contextmanager
    def prepare(self, plan: Plan, incoming: Incoming, *, for_commit: bool = True) -> Iterator[PreparedLoad]:
        name = self._qualified()
        if for_commit:
            self._refuse_rolled_back(plan)
        for column in plan.columns:
            refuse_long_name(self.engine, column.name, "column")
        with self.engine.session(writes=for_commit) as session:
            entry = self._checked_entry(session, name)
            load = LoadContext(self.engine, session, plan, name, entry)
            total = _stage(load, *rows_to_stage(plan, incoming))
            session.begin(name, exists=entry is not None, lock=for_commit)
            _refuse_moved(load)
            yield WarehouseLoad(load, compute_effect(load, total), for_commit)

    def settle(self) -> None:
        """Markers stay where they were written."""

    def input_version(self) -> str | None:
        with self.engine.session(writes=False) as session:
            return input_version(session, self.name, self._qualified())

    def read(self, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        return exported_rows(self.engine, self.name, self._qualified(), version, spark)

    def _refuse_rolled_back(self, plan: Plan) -> None:
        held = 0 if plan.current is None else int(plan.current.version)
        if held < self._claimed_sequence:
            raise rolled_back(plan.table)

    def _qualified(self) -> TableName:
        return qualified_name(self.engine, self.name)

    def _checked_entry(self, session: Session, name: TableName) -> CatalogEntry | None:
        """Refuses what cannot be loaded into before any work is done."""
        entry = session.describe(name)
        if entry is None:
            obstacle = session.obstacle_to_create(name)
            if obstacle:
                raise DestinationError(
                    f"{self.name}: cannot be created in {self.engine.database}: {obstacle}",
                    hint="give this user the permission, or choose another `table`",
                )
        elif not entry.is_table:
            raise NotATable(
                f"{self.name}: {entry.obstacle}, not a table that can be loaded into",
                hint="choose another `table`" + (", or drop the view and run again" if entry.is_view else ""),
            )
        elif entry.obstacle:
            raise DestinationError(
                f"{self.name}: {entry.obstacle}",
                hint="give this user the permission, or choose another `table`",
            )
        return entry


def _shape(session: Session, name: TableName, entry: CatalogEntry) -> TableShape:
    last = MarkerTables(session, name, entry.table_id).last()
    columns = tuple(column.column for column in entry.columns)
    return TableShape(columns, str(last.sequence), entry.table_id, unique_by=last.unique_by)


def _stage(load: LoadContext, total: int, tables: Iterator[pa.Table]) -> int:
    """Compares the count of the checked rows with what the database counts."""
    load.session.create_temporary(STAGED, load.staged)
    load.session.fill(STAGED, load.staged, tables)
    staged = int(str(load.session.fetch(f"SELECT COUNT(*) FROM {load.sql.quote(STAGED)}")[0][0]))
    if staged != total:
        raise CountsDoNotBalance(
            f"{load.plan.table}: {total} rows were read and {staged} arrived in the database; "
            "nothing was written",
            hint="run again; if it happens again, please report it as a bug",
        )
    return total


def _refuse_moved(load: LoadContext) -> None:
    """Expects the lock. Types and nullability count too: the labels depend on them."""
    seen = load.plan.current
    entry = load.session.describe(load.name)
    now = None if entry is None else _shape(load.session, load.name, entry)
    if entry != load.entry or (now is None) != (seen is None):
        raise _moved(load, "was created, dropped or altered")
    if now is None or seen is None:
        return
    if now.version != seen.version:
        raise _moved(load, f"was at sequence {seen.version} and is at {now.version}")
    if (now.columns, now.table_id) != (seen.columns, seen.table_id):
        raise _moved(load, "was altered")


def _moved(load: LoadContext, what: str) -> TableMoved:
    return TableMoved(f"{load.plan.table}: the table {what} since the load was planned; nothing was written")


class WarehouseDestination:
    """Also its own `TableLocator`: querying a database needs no Spark."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self.capabilities: Capabilities = engine.capabilities
        self.table_properties: Mapping[str, str] = {}
        self.views: Views | None = WarehouseViews(engine)

    def table(self, name: str) -> WarehouseTable:
        return WarehouseTable(name, self._engine)

    def key(self, table: str) -> str:
        return self.table(table).key

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        return self.table(table).was_rolled_back(last)

    def column_type(self, spark_type: str) -> str:
        if spark_type == "void":  # fits any type of the table; a new column becomes text
            return spark_type
        return self._engine.spark_type(self._engine.native_type(spark_type))

    def check(self) -> None:
        self._engine.check()
