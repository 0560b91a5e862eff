"""What a Delta table cannot take, by its properties."""

from __future__ import annotations

from tallymark.errors import Unsupported
from tallymark.model.plan import Plan
from tallymark.model.receipt import Counts

_APPEND_ONLY = "delta.appendOnly"
_COLUMN_MAPPING = "delta.columnMapping.mode"  # with it, a table can have any names
_EXPIRING_TRANSACTIONS = "delta.setTransactionRetentionDuration"
_FORBIDDEN_IN_NAMES = frozenset(" ,;{}()\n\t=")


def refuse_odd_names(plan: Plan) -> None:
    properties = plan.table_properties if plan.current is None else plan.current.properties
    if properties.get(_COLUMN_MAPPING, "none") != "none":
        return
    for column in plan.columns:
        if bad := sorted(_FORBIDDEN_IN_NAMES & set(column.name)):
            raise Unsupported(
                f"column {column.name!r}: a Delta table cannot hold a name with {' '.join(map(repr, bad))}",
                hint=f"rename it by a rule under `columns`: {{from: {column.name!r}, name: …}}; or set the "
                f"table property {_COLUMN_MAPPING} to name",
                facts={"column": column.name},
            )


def refuse_expiring_transactions(plan: Plan) -> None:
    """The fence lives in Delta's transaction identifiers; they must never expire."""
    if plan.current is not None and _EXPIRING_TRANSACTIONS in plan.current.properties:
        raise Unsupported(
            f"{plan.table}: table property {_EXPIRING_TRANSACTIONS} lets the fence against late writers "
            "expire",
            hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_EXPIRING_TRANSACTIONS}')",
        )


def refuse_changes_to_append_only(plan: Plan, counts: Counts) -> None:
    changed = counts.updated + counts.closed + counts.deleted
    if changed and plan.current is not None and plan.current.properties.get(_APPEND_ONLY) == "true":
        raise Unsupported(
            f"{plan.table}: the table only takes new rows ({_APPEND_ONLY}), but {changed} rows would be "
            "changed or removed",
            hint=f"use append_only or insert, or ALTER TABLE … UNSET TBLPROPERTIES ('{_APPEND_ONLY}')",
        )
