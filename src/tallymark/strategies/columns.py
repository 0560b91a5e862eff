"""Which columns a load writes, and how the table's schema may change for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallymark.errors import PlanError, TypeConflict
from tallymark.model.plan import AddColumn, ChangeType, SchemaChange
from tallymark.model.settings import SchemaEvolution
from tallymark.model.table import Column, TableShape, find_column
from tallymark.model.types import Primitive, stored_type

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDER = {("float", "double"), ("date", "timestamp_ntz")}


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
    match stored_type(given), stored_type(wanted):
        case Primitive(name="void"), _:
            return True
        case Primitive(name=whole), Primitive(name=wider) if whole in _DIGITS and wider in _DIGITS:
            return _DIGITS[whole] <= _DIGITS[wider]
        case Primitive(name=whole), Primitive(name="decimal", sizes=sizes) if whole in _DIGITS:
            return _fits((_DIGITS[whole], 0), sizes)
        case Primitive(name=whole), Primitive(name="double") if whole in _DIGITS:
            return whole != "bigint"
        case Primitive(name="decimal", sizes=sizes), Primitive(name="decimal", sizes=wider_sizes):
            return _fits(sizes, wider_sizes)
        case one, other:
            return (one.family, other.family) in _WIDER


def _fits(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Digits before and behind the point, each as (precision, scale)."""
    return wanted[1] >= given[1] and wanted[0] - wanted[1] >= given[0] - given[1]


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
