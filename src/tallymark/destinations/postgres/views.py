"""Views of PostgreSQL, which can replace the query of a view only if its columns stay the same."""

from __future__ import annotations

from tallymark.destinations.postgres.types import DIALECT
from tallymark.destinations.warehouse.engine import Session, TableName
from tallymark.errors import DestinationError

_TRIAL = "_tm_view"


def schema_of(name: TableName) -> str:
    return "current_schema()" if name.schema is None else DIALECT.text(name.schema)


def oid_of(session: Session, name: TableName) -> str | None:
    rows = session.fetch(
        "SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = {schema_of(name)} AND c.relname = {DIALECT.text(name.table)}"
    )
    return str(rows[0][0]) if rows else None


def replace_view(session: Session, name: TableName, query: str) -> None:
    """Drops a view that cannot take the query and creates it again, with its grants. All this is in one
    transaction: readers see the old view or the new one."""
    existing = oid_of(session, name)
    if existing is None or _takes(session, existing, query):
        session.execute(f"CREATE OR REPLACE VIEW {DIALECT.table(name)} AS {query}")
        return
    _refuse_readers(session, existing)
    grants = _grants(session, existing)
    session.execute(f"DROP VIEW {DIALECT.table(name)}")
    session.execute(f"CREATE VIEW {DIALECT.table(name)} AS {query}")
    for granted in grants:
        session.execute(f"GRANT {granted}")


def _takes(session: Session, existing: str, query: str) -> bool:
    """PostgreSQL accepts new columns after the existing ones, and no other change."""
    session.execute(f"CREATE TEMP VIEW {DIALECT.quote(_TRIAL)} AS {query}")
    trial = session.fetch(f"SELECT 'pg_temp.{_TRIAL}'::regclass::oid")[0][0]
    before, after = _columns(session, existing), _columns(session, str(trial))
    session.execute(f"DROP VIEW pg_temp.{DIALECT.quote(_TRIAL)}")
    return after[: len(before)] == before


def _columns(session: Session, oid: str) -> list[tuple[object, ...]]:
    return session.fetch(
        "SELECT attname, format_type(atttypid, atttypmod), attcollation::text FROM pg_catalog.pg_attribute "
        f"WHERE attrelid = {oid} AND attnum > 0 ORDER BY attnum"
    )


def _grants(session: Session, oid: str) -> list[str]:
    rows = session.fetch(
        "SELECT format('%s ON %s TO %s%s', g.privilege_type, c.oid::regclass, "
        "CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END, "
        "CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) "
        f"FROM pg_catalog.pg_class c, aclexplode(c.relacl) g WHERE c.oid = {oid} AND g.grantee <> c.relowner"
    )
    return [str(granted) for (granted,) in rows]


def _refuse_readers(session: Session, oid: str) -> None:
    rows = session.fetch(
        "SELECT DISTINCT r.ev_class::regclass::text FROM pg_catalog.pg_depend d "
        "JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass "
        f"WHERE d.refobjid = {oid} AND r.ev_class <> d.refobjid ORDER BY 1"
    )
    if rows:
        readers = ", ".join(str(reader) for (reader,) in rows)
        raise DestinationError(
            f"its columns change, which PostgreSQL allows only if no other view reads it; {readers} does",
            hint="drop the views that read it, then run again: Tallymark creates its own views again",
        )
