"""Rows that are on the driver already go from there into the destination, not back through Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tallymark.checks.conform import Conformed
from tallymark.checks.split import Checked, fits_driver
from tallymark.destinations.contract import ArrowRows, Incoming, SparkRows
from tallymark.flow.job import Job
from tallymark.model.batch import Batch, Files
from tallymark.model.plan import FILE_ORDER, Plan
from tallymark.model.table import (
    INGESTED_AT,
    PROVENANCE_COLUMNS,
    SOURCE_FILE_HASH,
    Column,
    find_column,
    is_provenance,
)

ROWS_AT_ONCE = 100_000


def can_collect(job: Job, batch: Batch, columns: Iterable[Column]) -> bool:
    """Only files: they can be read again if rows turn out to be bad, and are the same then. Only values that
    are staged as they are: others, such as nested ones that become JSON, Spark converts."""
    if not isinstance(batch.contents, Files) or not fits_driver(batch.contents.files):
        return False
    as_they_are = (_is_flat(c) and job.destination.column_type(c.type) == c.type for c in columns)
    return job.destination.capabilities.takes_arrow and all(as_they_are)


def incoming_rows(batch: Batch, plan: Plan, rows: Conformed, checked: Checked) -> Incoming:
    count = checked.total - checked.rejected
    if checked.collected is not None and _fits(plan, rows):
        return ArrowRows(_parts(checked.collected, batch, plan), count)
    return SparkRows(checked.good, count)


def _fits(plan: Plan, rows: Conformed) -> bool:
    """A table that is already there may have other types than its rows."""
    known = (*rows.columns, *PROVENANCE_COLUMNS)
    found = [(column, find_column(known, column.name)) for column in plan.given]
    return all(own is not None and own.type == column.type and _is_flat(own) for column, own in found)


def _is_flat(column: Column) -> bool:
    return "<" not in column.type


def _parts(rows: pa.Table, batch: Batch, plan: Plan) -> Iterator[pa.Table]:
    """Provenance is the same for all rows of a file, so it is added here, some rows at a time."""
    added = [column.name.casefold() for column in plan.given if is_provenance(column.name)]
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        some = rows.slice(start, ROWS_AT_ONCE)
        for name in added:
            some = some.append_column(name, _provenance(name, some[FILE_ORDER], batch))
        yield some


def _provenance(name: str, file_orders: pa.ChunkedArray, batch: Batch) -> pa.Array | pa.ChunkedArray:
    if name == INGESTED_AT:
        return pa.repeat(pa.scalar(batch.as_of, pa.timestamp("us", "UTC")), len(file_orders))
    of_files = batch.content_hashes if name == SOURCE_FILE_HASH else batch.names
    return pa.array(of_files, pa.string()).take(file_orders)
