"""Which columns of a table tell most of its labels: reading two of eighty is a small part of the work."""

from __future__ import annotations

from collections.abc import Sequence

from tallymark.model.plan import Glance
from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column, TableShape, find_column
from tallymark.strategies.sql import compared, in_table

_TIMES = ("timestamp", "timestamp_ntz", "date")
_ORDERS = (*_TIMES, "tinyint", "smallint", "int", "bigint")  # of one notation for each value


def glance_of(
    settings: MergeSettings,
    given: Sequence[Column],
    written: Sequence[Column],
    current: TableShape | None,
    order: Sequence[Column],
) -> Glance | None:
    """A row that changed has nearly always another place in the declared order, or else another time. None
    where there is no such column, or where the table's own values are written again."""
    if any(find_column(given, column.name) is None for column in written):
        return None
    held = [column for column in order if in_table(current, column.name)]
    comparing = [c for c in compared(settings, given) if in_table(current, c.name)]
    telling = [c for c in held if c in comparing and c.type in _ORDERS]
    telling += [c for c in comparing if c.type in _TIMES]
    return Glance(telling[0].name, tuple(column.name for column in held)) if telling else None
