"""Views of a SQL database.

A view that Tallymark made has a marker, as a table has: its content is its query, and its identity
(`table_id`) is what the database says that it says. So a view of this name that somebody else made or changed
is not taken for ours, and is left alone.

The phases of `make`, all in one transaction:

1. the place is held against other loads; nothing has changed since the plan, or TableMoved
2. the fence, as for a table
3. schema and view; it must be readable, which the database says without reading a row
4. marker and fence; COMMIT
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallymark.destinations.contract import Commit, ViewPlan, ViewQuery
from tallymark.destinations.warehouse.engine import Engine, Name, Relation, Session, located
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.destinations.warehouse.translate import ReadTable, translated
from tallymark.errors import DestinationError, NotATable, TableMoved, Unsupported
from tallymark.model.receipt import Marker

METHOD = "view"


@dataclass(frozen=True)
class DatabaseViews:
    engine: Engine

    def plan(self, table: str, query: ViewQuery) -> ViewPlan:
        with self.engine.session(writes=False) as session:
            return self._planned(session, table, query)

    def make(self, plan: ViewPlan, marker: Marker) -> Commit:
        name = located(self.engine, plan.table)
        with self.engine.session(writes=True) as session:
            # By its name: a lock on the view itself would take hold of the tables that it reads.
            session.begin(name, exists=False, lock=True)
            if self._planned(session, plan.table, plan.query) != plan:
                raise TableMoved(f"{plan.table}: the view or what it reads has changed; nothing was written")
            standing = session.relation(name)
            if standing is not None:
                MarkerTables(session, name, standing.table_id).refuse_late(plan.table, marker)
            self._replace(session, name, plan)
            made = session.relation(name)
            markers = MarkerTables(session, name, made.table_id if made else "")
            markers.forget()  # of what the view said before: it is no proof of what it says now
            committed_at = markers.write(marker)
            session.commit()
        return Commit(str(marker.sequence), committed_at, METHOD)

    def _planned(self, session: Session, table: str, query: ViewQuery) -> ViewPlan:
        name = located(self.engine, table)
        standing = session.relation(name)
        if standing is not None:
            _refuse_not_ours(session, table, name, standing)
        elif obstacle := session.obstacle_to_create(name):
            raise DestinationError(
                f"{table}: cannot be created in {self.engine.place}: {obstacle}",
                hint="give this user the permission, or choose another place",
            )
        inputs = {relation: self._input(session, read) for relation, read in query.tables.items()}
        there = {relation: found for relation, found in inputs.items() if found is not None}
        plan = ViewPlan(table, query, name.sql, replaces=standing is not None)
        if len(there) < len(inputs):
            return replace(plan, missing=tuple(sorted(inputs.keys() - there.keys())))
        return replace(plan, sql=self._translated(query, there))

    def _translated(self, query: ViewQuery, inputs: Mapping[str, ReadTable]) -> str:
        try:
            return translated(self.engine, query.sql, inputs, for_view=True)
        except ValueError as error:
            place = self.engine.capabilities.name
            raise Unsupported(
                f"{query.file}: the view cannot be translated to {place}: {error}",
                hint="write it otherwise (see docs/how-to/transform.md), or set materialized: table",
            ) from error

    def _input(self, session: Session, table: str) -> ReadTable | None:
        name = located(self.engine, table)
        found = session.relation(name)
        if found is None:
            return None
        if not (found.is_table or found.is_view):
            raise NotATable(f"{table}: {found.obstacle}, which a view cannot read", hint="refer to a table")
        return ReadTable(name, session.view_columns(name) if found.is_view else found.columns)

    def _replace(self, session: Session, name: Name, plan: ViewPlan) -> None:
        try:
            if name.schema is not None:
                session.execute(f"CREATE SCHEMA IF NOT EXISTS {name.schema_sql}")
            session.replace_view(name, plan.sql)
            session.fetch(f"SELECT * FROM {name.sql} LIMIT 0")
        except DestinationError as error:
            if type(error) is not DestinationError:  # busy, moved: not the query's fault
                raise
            raise DestinationError(
                f"{plan.query.file}: {plan.table} cannot be made a view: {error.message}; "
                "nothing was changed",
                hint=error.hint
                or "correct the query; `tallymark plan --sql` shows it as the database gets it",
            ) from error


def _refuse_not_ours(session: Session, table: str, name: Name, standing: Relation) -> None:
    if standing.is_table:
        raise NotATable(
            f"{table}: is a table, which a view does not replace",
            hint="choose another `table`; or, if nobody needs its rows, drop the table and run again",
        )
    if not standing.is_view:
        raise NotATable(f"{table}: {standing.obstacle}", hint="choose another `table`")
    if MarkerTables(session, name, standing.table_id).last().sequence == 0:
        raise NotATable(
            f"{table}: is a view that Tallymark did not make, or that somebody has changed since",
            hint="choose another `table`; or, if nobody needs that view, drop it and run again",
        )
