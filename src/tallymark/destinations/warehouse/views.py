"""Views of a database.

A view that Tallymark made has a marker, like a table. Its content is its query, and its identity (`table_id`)
is the definition that the database reports. So a view of this name that somebody else made or changed is
recognized, and is left alone.

The phases of `make`, all in one transaction:

1. Lock the name against other loads. Raise TableMoved if anything has changed since the plan.
2. Compare the fence, as for a table.
3. Create schema and view. It must be readable, which the database checks without reading a row.
4. Write marker and fence. COMMIT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallymark.destinations.contract import Commit, ViewPlan, ViewQuery
from tallymark.destinations.warehouse.engine import CatalogEntry, Engine, Session, TableName, qualified_name
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.destinations.warehouse.translate import ReadTable, translated
from tallymark.errors import DestinationError, NotATable, TableMoved, Unsupported
from tallymark.model.receipt import Marker

METHOD = "view"


@dataclass(frozen=True)
class WarehouseViews:
    engine: Engine

    def plan(self, table: str, query: ViewQuery) -> ViewPlan:
        with self.engine.session(writes=False) as session:
            return self._planned(session, table, query)

    def make(self, plan: ViewPlan, marker: Marker) -> Commit:
        name = qualified_name(self.engine, plan.table)
        with self.engine.session(writes=True) as session:
            # By its name: a lock on the view itself would also lock the tables that it reads.
            session.begin(name, exists=False, lock=True)
            if self._planned(session, plan.table, plan.query) != plan:
                raise TableMoved(
                    f"{plan.table}: the view or a table that it reads has changed since the plan; "
                    "nothing was written"
                )
            existing = session.describe(name)
            if existing is not None:
                MarkerTables(session, name, existing.table_id).refuse_late(plan.table, marker)
            self._replace(session, name, plan)
            made = session.describe(name)
            markers = MarkerTables(session, name, made.table_id if made else "")
            markers.forget()  # those of the earlier query prove nothing about this one
            committed_at = markers.write(marker)
            session.commit()
        return Commit(str(marker.sequence), committed_at, METHOD)

    def _planned(self, session: Session, table: str, query: ViewQuery) -> ViewPlan:
        name = qualified_name(self.engine, table)
        existing = session.describe(name)
        if existing is not None:
            _refuse_not_ours(session, table, name, existing)
        elif obstacle := session.obstacle_to_create(name):
            raise DestinationError(
                f"{table}: cannot be created in {self.engine.database}: {obstacle}",
                hint="give this user the permission, or choose another `table`",
            )
        inputs = {relation: self._input(session, read) for relation, read in query.tables.items()}
        known = {relation: found for relation, found in inputs.items() if found is not None}
        plan = ViewPlan(table, query, self.engine.dialect.table(name), replaces=existing is not None)
        if len(known) < len(inputs):
            return replace(plan, missing=tuple(sorted(inputs.keys() - known.keys())))
        return replace(plan, sql=self._translated(query, known))

    def _translated(self, query: ViewQuery, inputs: Mapping[str, ReadTable]) -> str:
        try:
            return translated(self.engine, query.sql, inputs, for_view=True)
        except ValueError as error:
            raise Unsupported(
                f"{query.file}: the view cannot be translated to {self.engine.capabilities.name}: {error}",
                hint="rewrite it (see docs/how-to/transform.md#views), or set `materialized: table`",
            ) from error

    def _input(self, session: Session, table: str) -> ReadTable | None:
        name = qualified_name(self.engine, table)
        found = session.describe(name)
        if found is None:
            return None
        if not (found.is_table or found.is_view):
            raise NotATable(
                f"{table}: {found.obstacle}, and a view cannot read it", hint="refer to a table or a view"
            )
        return ReadTable(name, session.view_columns(name) if found.is_view else found.columns)

    def _replace(self, session: Session, name: TableName, plan: ViewPlan) -> None:
        try:
            if name.schema is not None:
                session.execute(f"CREATE SCHEMA IF NOT EXISTS {session.dialect.schema(name)}")
            session.replace_view(name, plan.sql)
            session.fetch(f"SELECT * FROM {session.dialect.table(name)} LIMIT 0")
        except DestinationError as error:
            if type(error) is not DestinationError:  # busy or moved: not caused by the query
                raise
            raise DestinationError(
                f"{plan.query.file}: view {plan.table} cannot be created: {error.message}; "
                "nothing was changed",
                hint=error.hint
                or "correct the query; `tallymark plan --sql` shows it in the SQL of the database",
            ) from error


def _refuse_not_ours(session: Session, table: str, name: TableName, existing: CatalogEntry) -> None:
    if existing.is_table:
        raise NotATable(
            f"{table}: is a table; a view never replaces a table",
            hint="choose another `table`; or, if its rows are no longer needed, drop the table and run again",
        )
    if not existing.is_view:
        raise NotATable(f"{table}: {existing.obstacle}", hint="choose another `table`")
    if MarkerTables(session, name, existing.table_id).last().sequence == 0:
        raise NotATable(
            f"{table}: is a view that Tallymark did not create, or that somebody has changed since",
            hint="choose another `table`; or, if that view is no longer needed, drop it and run again",
        )
