"""From declared settings and the table's shape to a plan. Pure: no Spark, no destination, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from tallymark.errors import PlanError, Unsupported
from tallymark.model.plan import Append, Merge, Plan, ReplaceTable, Shape
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column, TableShape, find_column
from tallymark.strategies.columns import written_columns
from tallymark.strategies.keyed import merge_by_key
from tallymark.strategies.needs import effective


def build_plan(
    table: str,
    declared: MergeSettings,
    incoming: Sequence[Column],
    current: TableShape | None,
    *,
    table_properties: Mapping[str, str] | None = None,
) -> Plan:
    chosen = effective(declared)
    settings = chosen.settings
    _check_names(settings, incoming)
    written = written_columns(
        incoming,
        current,
        settings.schema_evolution,
        may_change_types=settings.strategy is Strategy.FULL_REFRESH,
    )
    kept = [c for c in incoming if find_column(written.columns, c.name) is not None]
    shape, reason = _shape(settings, kept, written.columns, current)
    return Plan(
        table=table,
        settings=settings,
        shape=shape,
        reason=reason,
        columns=written.columns,
        current=current,
        schema_changes=written.changes,
        max_delete_fraction=chosen.max_delete_fraction,
        partition_by=(settings.partition_column,) if settings.partition_column and current is None else (),
        table_properties=dict(table_properties or {}),
        warnings=chosen.warnings,
    )


def _shape(
    settings: MergeSettings, incoming: Sequence[Column], written: Sequence[Column], current: TableShape | None
) -> tuple[Shape, str]:
    match settings.strategy:
        case Strategy.FULL_REFRESH:
            return ReplaceTable(), "full_refresh: the table becomes the rows of the batch"
        case Strategy.APPEND_ONLY:
            return Append(), "append_only: every row of the batch is added"
        case Strategy.UPSERT | Strategy.INCREMENTAL:
            merge: Merge = merge_by_key(settings, incoming, written, current)
            keys = ", ".join(settings.unique_key)
            newer = (
                f"; rows older by {settings.watermark_column} stay out" if settings.watermark_column else ""
            )
            return merge, f"{settings.strategy}: rows are matched by {keys}{newer}"
        case other:
            raise Unsupported(f"merge_strategy {other} is not built yet")


def _check_names(settings: MergeSettings, incoming: Sequence[Column]) -> None:
    named = {
        "unique_key": settings.unique_key,
        "watermark_column": (settings.watermark_column,) if settings.watermark_column else (),
        "partition_column": (settings.partition_column,) if settings.partition_column else (),
        "compare_columns": settings.compare_columns,
    }
    for field, names in named.items():
        for name in names:
            if find_column(incoming, name) is None:
                close = get_close_matches(name, [column.name for column in incoming], n=1)
                suggestion = (
                    f"did you mean {close[0]}?"
                    if close
                    else "the batch has " + ", ".join(column.name for column in incoming)
                )
                raise PlanError(f"{field}: the batch has no column {name}", hint=suggestion)
