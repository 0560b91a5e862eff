"""Rows that are on the driver already go from there into the destination, not back through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

from tallymark.checks.collect import fits_driver
from tallymark.checks.conform import Conformed
from tallymark.checks.split import Checked
from tallymark.destinations.contract import Prepared, TakesArrow
from tallymark.flow.job import Job
from tallymark.model.batch import Batch, BatchKind
from tallymark.model.plan import FILE_ORDER, Plan
from tallymark.model.table import (
    INGESTED_AT,
    PROVENANCE_COLUMNS,
    SOURCE_FILE_HASH,
    find_column,
    is_provenance,
)

ROWS_AT_ONCE = 100_000


def can_collect(job: Job, batch: Batch) -> bool:
    """Only files: they can be read again if rows turn out to be bad, and are the same then."""
    is_small = batch.kind is BatchKind.FILES and fits_driver(batch.files)
    return is_small and isinstance(job.destination, TakesArrow)


def prepare(
    job: Job, batch: Batch, plan: Plan, rows: Conformed, checked: Checked, *, for_commit: bool
) -> AbstractContextManager[Prepared]:
    destination, counted = job.destination, checked.total - checked.rejected
    if checked.collected is not None and isinstance(destination, TakesArrow) and _fits(plan, rows):
        parts = _parts(checked.collected, batch, plan)
        return destination.prepare_collected(plan, parts, rows=counted, for_commit=for_commit)
    return destination.prepare(plan, checked.good, rows=counted, for_commit=for_commit)


def _fits(plan: Plan, rows: Conformed) -> bool:
    """Whether the values are staged as they are. Others, such as nested ones that become JSON, Spark
    converts."""
    known = (*rows.columns, *PROVENANCE_COLUMNS)
    found = [(column, find_column(known, column.name)) for column in plan.given]
    return all(own is not None and own.type == column.type and "<" not in own.type for column, own in found)


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
    of_files = [file.content_hash if name == SOURCE_FILE_HASH else file.path for file in batch.files]
    return pa.array(of_files, pa.string()).take(file_orders)
