"""A table of a database as an input: its version, and its rows for Spark.

A database has no time travel, so a version can be read only while the table has it. The phases of one read:

1. Begin a transaction that sees one state.
2. Raise InputMoved unless the table has the requested version.
3. Write its rows, in parts, to a Parquet file in a temporary folder, and end the transaction.
4. Let Spark read that file for as long as the caller needs it, then delete the folder.
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

from tallymark.destinations.warehouse.engine import CatalogEntry, Engine, Session, TableName
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.errors import DestinationError, InputMoved, NotATable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DIGITS = 12  # of a digest: enough to distinguish the states of one table


def input_version(session: Session, table: str, name: TableName) -> str | None:
    found = _readable(session, table, name)
    return None if found is None else _version(session, name, found)


@contextmanager
def exported_rows(
    engine: Engine, table: str, name: TableName, version: str, spark: SparkSession
) -> Iterator[DataFrame]:
    with _temporary_folder() as folder:
        with engine.session(writes=False) as session:
            session.begin_read(name)
            found = _readable(session, table, name)
            now = None if found is None else _version(session, name, found)
            if found is None or now != version:
                raise InputMoved(table, wanted=version, found=now)
            _export(session, name, found, folder)
        # Dates before 1582 are not shifted, whatever the session's setting.
        yield spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(_url(folder))


def _readable(session: Session, table: str, name: TableName) -> CatalogEntry | None:
    """Expects no permission to load: reading is enough."""
    found = session.describe(name)
    if found is not None and found.is_view:
        return replace(found, columns=session.view_columns(name))
    if found is not None and not found.is_table:
        raise NotATable(
            f"{table}: {found.obstacle}, and cannot be an input", hint="refer to a table or a view"
        )
    return found


def _version(session: Session, name: TableName, found: CatalogEntry) -> str:
    """From the last load. A table that others fill has none: its version is a digest of all its rows. So is
    that of a view, whose rows change without a load of the view."""
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


def _export(session: Session, name: TableName, found: CatalogEntry, folder: Path) -> None:
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
        f"{folder}: cannot hold the rows of an input: {error}",
        hint="free some space, or set TMPDIR to a folder that has enough",
    )


def _url(folder: Path) -> str:
    """As a URL, since Spark may resolve plain paths on another file system; with glob characters escaped."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(folder))
