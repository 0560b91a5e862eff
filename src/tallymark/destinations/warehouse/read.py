"""A table of a SQL database as an input: which version it has now, and its rows for Spark.

A database has no time travel, so a version can be read as long as the table has it. The story of one read:

1. a transaction that sees one state begins
2. in it the table has the version that was asked for, or InputMoved
3. its rows go, some at a time, into a Parquet file in a temporary folder, and the transaction ends
4. Spark reads that file for as long as the caller needs it; then the folder goes
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tallymark.destinations.warehouse.engine import Engine, Name, Relation, Session
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.errors import DestinationError, InputMoved, NotATable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DIGITS = 12  # of a digest: enough to tell apart two states of one table


def input_version(session: Session, table: str, name: Name) -> str | None:
    found = _readable(session, table, name)
    return None if found is None else _version(session, name, found)


@contextmanager
def exported_rows(
    engine: Engine, table: str, name: Name, version: str, spark: SparkSession
) -> Iterator[DataFrame]:
    with _temporary_folder() as folder:
        with engine.session(writes=False) as session:
            session.freeze(name)
            found = _readable(session, table, name)
            now = None if found is None else _version(session, name, found)
            if found is None or now != version:
                raise InputMoved(table, wanted=version, found=now)
            _export(session, name, found, folder)
        # Years before 1582 are what they say, whatever the session is set to.
        yield spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(_address(folder))


def _readable(session: Session, table: str, name: Name) -> Relation | None:
    """Who only reads may lack the permission to load."""
    found = session.relation(name)
    if found is not None and found.is_view:
        return replace(found, columns=session.view_columns(name))
    if found is not None and not found.is_table:
        raise NotATable(f"{table}: {found.obstacle}, which cannot be an input", hint="refer to a table")
    return found


def _version(session: Session, name: Name, found: Relation) -> str:
    """By its last load; and for a table without one, which others fill, by all of its rows. A view, too: what
    it gives changes without a load of it."""
    if found.is_view:
        return f"view-{_digest(found.columns, session.fingerprint(name, found.columns))}"
    columns = [(column.name, column.native) for column in found.columns]
    markers = MarkerTables(session, name, found.table_id)
    last = markers.last()
    if last.sequence == 0:
        return f"rows-{_digest(columns, session.fingerprint(name, found.columns))}"
    return f"{last.sequence}-{_digest(columns, last.fence, markers.batch_of(last.sequence))}"


def _digest(*facts: object) -> str:
    return sha256(repr(facts).encode()).hexdigest()[:_DIGITS]


def _export(session: Session, name: Name, found: Relation, folder: Path) -> None:
    try:
        session.export(name, found.columns, folder / "rows.parquet")
    except OSError as error:
        raise _no_space(folder, error) from error


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="tallymark-input-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_space(Path(tempfile.gettempdir()), error) from error
    with made as folder:
        yield Path(folder)


def _no_space(folder: Path, error: OSError) -> DestinationError:
    return DestinationError(
        f"{folder}: rows of an input cannot be kept there: {error}",
        hint="free some space, or set TMPDIR to a folder that has enough",
    )


def _address(folder: Path) -> str:
    """As Spark takes it, which may have another file system for plain paths and knows globs."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(folder))
