"""Tables of a SQL database. One class for all engines; what differs between them is in `sql_engine`.

The story of one load (`prepare` and then `commit`), in one session:

1. connect; the batch comes from Spark into a temporary table, in the types of the table. The table is not
   locked yet: this is what takes longest
2. the transaction begins, for a commit with the table's write lock, and the table is what the plan saw, or
   TableMoved. From here to the end nobody else changes it, or the engine notices at the commit
3. refusals, labels and counts, computed inside the database
4. `commit` (see `sql_prepared`). Leaving without it gives up everything: nothing of it was durable
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from tallymark.destinations.contract import Prepared, TableMarkers, Views, gone_back
from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.warehouse import read as sql_read
from tallymark.destinations.warehouse.engine import Engine, Name, Relation, Session
from tallymark.destinations.warehouse.labels import effect_of
from tallymark.destinations.warehouse.markers import SqlMarkers
from tallymark.destinations.warehouse.prepared import SqlPrepared
from tallymark.destinations.warehouse.stage import arrow_tables, staged_frame, staged_table
from tallymark.destinations.warehouse.views import SqlViews
from tallymark.destinations.warehouse.work import STAGED, Work
from tallymark.errors import (
    CountsDoNotBalance,
    DestinationError,
    NotATable,
    TableMoved,
    TallymarkError,
    Unsupported,
)
from tallymark.model.plan import Plan
from tallymark.model.receipt import Receipt
from tallymark.model.table import TableShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    _Batch = tuple[int, Iterator[pa.Table]]  # how many rows, and the rows


class SqlDestination:
    def __init__(self, engine: Engine):
        self._engine = engine
        self.capabilities: Capabilities = engine.capabilities
        self.table_properties: Mapping[str, str] = {}
        self.views: Views | None = SqlViews(engine, self._named)
        self._claimed_at: dict[str, int] = {}  # table → the last sequence that `applied` has shown

    def table_key(self, table: str) -> str:
        name = self._engine.locate(table)
        inside = name.key if name.schema is None else f"{name.schema}.{name.key}"
        return f"{self.capabilities.name}:{self._engine.place}:{inside}"

    def inspect(self, table: str) -> TableShape | None:
        name = self._named(table)
        with self._engine.session(writes=False) as session:
            relation = self._relation(session, table, name)
            return None if relation is None else _shape(session, name, relation)

    def applied(self, table: str, content_hashes: Collection[str] | None) -> TableMarkers:
        name = self._named(table)
        with self._engine.session(writes=False) as session:
            relation = session.relation(name)
            found = TableMarkers({})
            if relation is not None:
                found = SqlMarkers(session, name, relation.table_id).find(content_hashes)
        self._claimed_at[table] = found.held_sequence
        return found

    def has_gone_back(self, table: str, last: Receipt) -> bool:
        try:
            return self.applied(table, ()).held_sequence < last.sequence
        except TallymarkError:  # busy or away: a run with nothing to load has no need of it
            return False

    def column_type(self, spark_type: str) -> str:
        if spark_type == "void":  # it fits whatever the table has, or becomes a text
            return spark_type
        return self._engine.spark_type(self._engine.native_type(spark_type))

    @contextmanager
    def prepare(
        self, plan: Plan, incoming: DataFrame, *, rows: int | None = None, for_commit: bool = True
    ) -> Iterator[Prepared]:
        def batch() -> _Batch:
            total = incoming.count() if rows is None else rows
            return total, arrow_tables(staged_frame(plan, incoming), total)

        with self._prepared(plan, batch, for_commit=for_commit) as prepared:
            yield prepared

    @contextmanager
    def prepare_collected(
        self, plan: Plan, tables: Iterable[pa.Table], *, rows: int, for_commit: bool = True
    ) -> Iterator[Prepared]:
        staged = (staged_table(plan, table) for table in tables)
        with self._prepared(plan, lambda: (rows, staged), for_commit=for_commit) as prepared:
            yield prepared

    @contextmanager
    def _prepared(self, plan: Plan, batch: Callable[[], _Batch], *, for_commit: bool) -> Iterator[Prepared]:
        name = self._named(plan.table)
        if for_commit:
            self._refuse_gone_back(plan)
        for column in plan.columns:
            self._refuse_long(column.name, "column")
        with self._engine.session(writes=for_commit) as session:
            relation = self._relation(session, plan.table, name)
            work = Work(self._engine, session, plan, name, relation)
            total = _stage(work, *batch())
            session.begin(name, exists=relation is not None, lock=for_commit)
            _refuse_moved(work)
            yield SqlPrepared(work, effect_of(work, total), for_commit)

    def _refuse_gone_back(self, plan: Plan) -> None:
        held = 0 if plan.current is None else int(plan.current.version)
        if held < self._claimed_at.get(plan.table, 0):
            raise gone_back(plan.table)

    def settle(self, table: str) -> None:
        """Markers are where they stay from the start."""

    def input_version(self, table: str) -> str | None:
        with self._engine.session(writes=False) as session:
            return sql_read.input_version(session, table, self._named(table))

    def relation(self, table: str, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        return sql_read.relation(self._engine, table, self._named(table), version, spark)

    def check(self) -> None:
        self._engine.check()

    def _named(self, table: str) -> Name:
        name = self._engine.locate(table)
        for part in (name.schema, name.table):
            self._refuse_long(part or "", "table")
        return name

    def _refuse_long(self, name: str, kind: str) -> None:
        if len(name.encode()) > self._engine.longest_name:
            raise Unsupported(
                f"{kind} {name}: the name is longer than {self._engine.longest_name} bytes, "
                f"which {self.capabilities.name} would cut off",
                hint="choose a shorter name",
            )

    def _relation(self, session: Session, table: str, name: Name) -> Relation | None:
        """Refuses what could not be loaded into, before any work is done."""
        relation = session.relation(name)
        if relation is None:
            obstacle = session.obstacle_to_create(name)
            if obstacle:
                raise DestinationError(
                    f"{table}: cannot be created in {self._engine.place}: {obstacle}",
                    hint="give this user the permission, or choose another place",
                )
        elif not relation.is_table:
            raise NotATable(
                f"{table}: {relation.obstacle}, not a table that can be loaded into",
                hint="choose another `table`"
                + (", or drop the view and run again" if relation.is_view else ""),
            )
        elif relation.obstacle:
            raise DestinationError(
                f"{table}: {relation.obstacle}",
                hint="give this user the permission, or choose another `table`",
            )
        return relation


def _shape(session: Session, name: Name, relation: Relation) -> TableShape:
    last = SqlMarkers(session, name, relation.table_id).last()
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
