"""One table of a database. The same class for all engines; what differs between them is in `engine.Engine`.

One load (`prepare`, then `commit`) takes one session:

1. Connect. The rows of the batch go into a temporary table, in the types of the table. The table is not
   locked yet: this takes longest.
2. The transaction begins; for a commit it takes the table's write lock. The table is what the plan saw, or
   TableMoved. From here to the end nobody else changes it, or the engine notices at the commit.
3. Refusals, labels and counts are computed inside the database.
4. `commit` (prepared.py). Leaving without it gives up everything: nothing was durable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallymark.destinations.contract import Incoming, PreparedLoad, TableMarkers, Views, rolled_back
from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.warehouse.engine import Engine, Name, Relation, Session, located, refuse_long_name
from tallymark.destinations.warehouse.labels import effect_of
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.destinations.warehouse.prepared import WarehouseLoad
from tallymark.destinations.warehouse.read import exported_rows, input_version
from tallymark.destinations.warehouse.stage import rows_to_stage
from tallymark.destinations.warehouse.views import DatabaseViews
from tallymark.destinations.warehouse.work import STAGED, Work
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
    _claimed_sequence: int = 0  # the last sequence that `markers` has returned

    @property
    def key(self) -> str:
        at = self.engine.locate(self.name)
        inside = at.key if at.schema is None else f"{at.schema}.{at.key}"
        return f"{self.engine.capabilities.name}:{self.engine.place}:{inside}"

    def was_rolled_back(self, last: Receipt) -> bool:
        try:
            return self.markers(()).held_sequence < last.sequence
        except TallymarkError:  # busy or unreachable: a run with nothing to load does not need it
            return False

    def shape(self) -> TableShape | None:
        name = self._located()
        with self.engine.session(writes=False) as session:
            relation = self._relation(session, name)
            return None if relation is None else _shape(session, name, relation)

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        name = self._located()
        found = TableMarkers({})
        with self.engine.session(writes=False) as session:
            relation = session.relation(name)
            if relation is not None:
                found = MarkerTables(session, name, relation.table_id).find(content_hashes)
        self._claimed_sequence = found.held_sequence
        return found

    @contextmanager
    def prepare(self, plan: Plan, incoming: Incoming, *, for_commit: bool = True) -> Iterator[PreparedLoad]:
        name = self._located()
        if for_commit:
            self._refuse_rolled_back(plan)
        for column in plan.columns:
            refuse_long_name(self.engine, column.name, "column")
        with self.engine.session(writes=for_commit) as session:
            relation = self._relation(session, name)
            work = Work(self.engine, session, plan, name, relation)
            total = _stage(work, *rows_to_stage(plan, incoming))
            session.begin(name, exists=relation is not None, lock=for_commit)
            _refuse_moved(work)
            yield WarehouseLoad(work, effect_of(work, total), for_commit)

    def settle(self) -> None:
        """Markers stay where they were written."""

    def input_version(self) -> str | None:
        with self.engine.session(writes=False) as session:
            return input_version(session, self.name, self._located())

    def read(self, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        return exported_rows(self.engine, self.name, self._located(), version, spark)

    def _refuse_rolled_back(self, plan: Plan) -> None:
        held = 0 if plan.current is None else int(plan.current.version)
        if held < self._claimed_sequence:
            raise rolled_back(plan.table)

    def _located(self) -> Name:
        return located(self.engine, self.name)

    def _relation(self, session: Session, name: Name) -> Relation | None:
        """Refuses what cannot be loaded into, before any work is done."""
        relation = session.relation(name)
        if relation is None:
            obstacle = session.obstacle_to_create(name)
            if obstacle:
                raise DestinationError(
                    f"{self.name}: cannot be created in {self.engine.place}: {obstacle}",
                    hint="give this user the permission, or choose another place",
                )
        elif not relation.is_table:
            raise NotATable(
                f"{self.name}: {relation.obstacle}, not a table that can be loaded into",
                hint="choose another `table`"
                + (", or drop the view and run again" if relation.is_view else ""),
            )
        elif relation.obstacle:
            raise DestinationError(
                f"{self.name}: {relation.obstacle}",
                hint="give this user the permission, or choose another `table`",
            )
        return relation


def _shape(session: Session, name: Name, relation: Relation) -> TableShape:
    last = MarkerTables(session, name, relation.table_id).last()
    columns = tuple(column.column for column in relation.columns)
    return TableShape(columns, str(last.sequence), relation.table_id, unique_by=last.unique_by)


def _stage(work: Work, total: int, tables: Iterator[pa.Table]) -> int:
    """Counted before, as rows were checked, and after by the database."""
    work.session.temporary(STAGED, work.staged)
    work.session.fill(STAGED, work.staged, tables)
    staged = int(str(work.session.fetch(f'SELECT COUNT(*) FROM "{STAGED}"')[0][0]))
    if staged != total:
        raise CountsDoNotBalance(
            f"{work.plan.table}: {total} rows were read and {staged} arrived in the database; "
            "nothing was written",
            hint="run again; if it happens again, please report it as a bug",
        )
    return total


def _refuse_moved(work: Work) -> None:
    """Expects the lock. Types and nullability count too: the labels were computed for them."""
    seen = work.plan.current
    relation = work.session.relation(work.name)
    now = None if relation is None else _shape(work.session, work.name, relation)
    if relation != work.relation or (now is None) != (seen is None):
        raise _moved(work, "was created, dropped or altered")
    if now is None or seen is None:
        return
    if now.version != seen.version:
        raise _moved(work, f"was at sequence {seen.version} and is at {now.version}")
    if (now.columns, now.table_id) != (seen.columns, seen.table_id):
        raise _moved(work, "was altered")


def _moved(work: Work, what: str) -> TableMoved:
    return TableMoved(f"{work.plan.table}: the table {what} since the load was planned; nothing was written")


class WarehouseDestination:
    """Also its own `TableLocator`: no Spark is needed to ask a database."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self.capabilities: Capabilities = engine.capabilities
        self.table_properties: Mapping[str, str] = {}
        self.views: Views | None = DatabaseViews(engine)

    def table(self, name: str) -> WarehouseTable:
        return WarehouseTable(name, self._engine)

    def key(self, table: str) -> str:
        return self.table(table).key

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        return self.table(table).was_rolled_back(last)

    def column_type(self, spark_type: str) -> str:
        if spark_type == "void":  # it fits whatever the table has, or becomes text
            return spark_type
        return self._engine.spark_type(self._engine.native_type(spark_type))

    def check(self) -> None:
        self._engine.check()
