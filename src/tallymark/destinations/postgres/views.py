"""Views of PostgreSQL, which takes another query into a view only while its columns stay what they are."""

from __future__ import annotations

from tallymark.destinations.warehouse.engine import Name, Session, literal, quoted
from tallymark.errors import DestinationError

_TRIAL = "_tm_view"


def schema_of(name: Name) -> str:
    return "current_schema()" if name.schema is None else literal(name.schema)


def oid_of(session: Session, name: Name) -> str | None:
    rows = session.fetch(
        "SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = {schema_of(name)} AND c.relname = {literal(name.table)}"
    )
    return str(rows[0][0]) if rows else None


def replace_view(session: Session, name: Name, query: str) -> None:
    """Where the view cannot take the query, it is dropped and made anew, with its grants. Whoever reads it
    sees the one or the other: all this is in one transaction."""
    standing = oid_of(session, name)
    if standing is None or _takes(session, standing, query):
        session.execute(f"CREATE OR REPLACE VIEW {name.sql} AS {query}")
        return
    _refuse_readers(session, standing)
    grants = _grants(session, standing)
    session.execute(f"DROP VIEW {name.sql}")
    session.execute(f"CREATE VIEW {name.sql} AS {query}")
    for granted in grants:
        session.execute(f"GRANT {granted}")


def _takes(session: Session, standing: str, query: str) -> bool:
    """Columns may come after those that are there, and nothing else may change."""
    session.execute(f"CREATE TEMP VIEW {quoted(_TRIAL)} AS {query}")
    trial = session.fetch(f"SELECT 'pg_temp.{_TRIAL}'::regclass::oid")[0][0]
    before, after = _columns(session, standing), _columns(session, str(trial))
    session.execute(f"DROP VIEW pg_temp.{quoted(_TRIAL)}")
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
            f"its columns change, which PostgreSQL allows only while no other view reads it: {readers} does",
            hint="drop what reads it, then run again: what Tallymark made of it is made again",
        )
