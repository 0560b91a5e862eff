"""Which columns a load writes, and how the table's schema may change for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tallymark.errors import PlanError, TypeConflict
from tallymark.model.plan import AddColumn, ChangeType, SchemaChange
from tallymark.model.settings import SchemaEvolution
from tallymark.model.table import Column, TableShape, find_column

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class WrittenColumns:
    columns: tuple[Column, ...]  # in the table's order, new ones last
    changes: tuple[SchemaChange, ...]


def written_columns(
    incoming: Sequence[Column],
    current: TableShape | None,
    evolution: SchemaEvolution,
    *,
    may_change_types: bool,
) -> WrittenColumns:
    """The table's columns come first and keep their names and types: a type is never narrowed."""
    if current is None:
        return WrittenColumns(tuple(incoming), ())
    columns: list[Column] = []
    changes: list[SchemaChange] = []
    for column in current.columns:
        given = find_column(incoming, column.name)
        if given is None:
            _refuse_missing(column)
        elif given.type != column.type and not widens(given.type, column.type):
            if not may_change_types:
                raise _conflict(column, given)
            changes.append(ChangeType(column.name, column.type, given.type))
            columns.append(Column(column.name, given.type))
            continue
        columns.append(column)
    for column in incoming:
        if current.column(column.name) is not None or evolution is SchemaEvolution.IGNORE:
            continue
        if evolution is SchemaEvolution.FAIL:
            raise PlanError(
                f"column {column.name} ({column.type}) is new, and schema_evolution is fail",
                hint="set schema_evolution: add or ignore, or remove the column from the source",
            )
        changes.append(AddColumn(column))
        columns.append(Column(column.name, column.type))
    return WrittenColumns(tuple(columns), tuple(changes))


def widens(given: str, wanted: str) -> bool:
    """Whether every value of type `given` fits type `wanted` without loss."""
    if given == "void":
        return True
    if given in _INTEGERS:
        if wanted in _INTEGERS:
            return _INTEGERS.index(given) <= _INTEGERS.index(wanted)
        return _fits_decimal((_DIGITS[given], 0), wanted) or (wanted == "double" and given != "bigint")
    if decimal := _DECIMAL.fullmatch(given):
        return _fits_decimal((int(decimal[1]), int(decimal[2])), wanted)
    return (given, wanted) in {("float", "double"), ("date", "timestamp_ntz")}


def _fits_decimal(given: tuple[int, int], wanted: str) -> bool:
    match = _DECIMAL.fullmatch(wanted)
    if not match:
        return False
    precision, scale = int(match[1]), int(match[2])
    return scale >= given[1] and precision - scale >= given[0] - given[1]


def _refuse_missing(column: Column) -> None:
    if not column.nullable:
        raise PlanError(
            f"column {column.name} of the table is NOT NULL, and the batch does not have it",
            hint=f"deliver {column.name}, or rename another column to it by a rule under `columns`",
        )


def _conflict(column: Column, given: Column) -> TypeConflict:
    return TypeConflict(
        f"column {column.name} is {given.type} in the batch and {column.type} in the table, and not every "
        "value fits",
        hint=f"set `type: {column.type}` for {column.name} under `columns` (rows whose value does not fit "
        "are quarantined), or change the type of the table's column",
        facts={"column": column.name, "incoming": given.type, "table": column.type},
    )
