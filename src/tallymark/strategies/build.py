"""From declared settings and the table's shape to a plan. Pure: no Spark, no destination, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches

from tallymark.errors import PlanError
from tallymark.model.plan import Append, KeyRange, Merge, Plan, ReplaceSlices, ReplaceTable, Shape
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column, TableShape, find_column
from tallymark.strategies.cdc import merge_changes
from tallymark.strategies.columns import written_columns
from tallymark.strategies.history import history_columns, history_of
from tallymark.strategies.keyed import merge_by_key
from tallymark.strategies.needs import effective
from tallymark.strategies.versions import merge_versions


def build_plan(
    table: str,
    declared: MergeSettings,
    incoming: Sequence[Column],
    current: TableShape | None,
    *,
    as_of: datetime,
    table_properties: Mapping[str, str] | None = None,
    anew: bool = False,
    key_ranges: tuple[KeyRange, ...] = (),
) -> Plan:
    """`incoming` are the batch's columns, in the types as which the destination would store them. `anew`: the
    table becomes what the strategy would make of the batch in an empty one."""
    chosen = effective(declared)
    settings = chosen.settings
    _check_names(settings, incoming)
    written = written_columns(
        _stored(settings, incoming),
        current,
        settings.schema_evolution,
        may_change_types=anew or settings.strategy is Strategy.FULL_REFRESH,
    )
    given = _given(settings, incoming, written.columns)
    shape, reason = _shape(settings, given, written.columns, None if anew else current, as_of)
    if anew:
        shape, reason = _anew(shape), f"full refresh of {reason}"
    return Plan(
        table=table,
        settings=settings,
        shape=shape,
        reason=reason,
        columns=written.columns,
        given=given,
        current=current,
        as_of=as_of,
        schema_changes=written.changes,
        max_delete_fraction=None if anew else chosen.max_delete_fraction,
        partition_by=(settings.partition_column,) if settings.partition_column and current is None else (),
        table_properties=dict(table_properties or {}),
        key_ranges=key_ranges,
        warnings=chosen.warnings,
    )


def _shape(
    settings: MergeSettings,
    given: Sequence[Column],
    written: Sequence[Column],
    current: TableShape | None,
    as_of: datetime,
) -> tuple[Shape, str]:
    keys = ", ".join(settings.unique_key)
    matched = f"{settings.strategy}: rows are matched by {keys}"
    merge: Merge
    match settings.strategy:
        case Strategy.FULL_REFRESH:
            return ReplaceTable(), "full_refresh: the table becomes the rows of the batch"
        case Strategy.APPEND_ONLY:
            return Append(), "append_only: every row of the batch is added"
        case Strategy.DELETE_INSERT:
            return ReplaceSlices(settings.unique_key), f"delete_insert: rows are replaced by {keys}"
        case Strategy.SNAPSHOT:
            column = str(settings.partition_column)
            return ReplaceSlices((column,)), f"snapshot: partitions of {column} are replaced whole"
        case Strategy.SCD2:
            merge = merge_versions(settings, given, written, current, as_of)
            return merge, f"scd2: versions of {keys} by {history_of(settings).told}"
        case Strategy.CDC:
            if settings.cdc is not None and settings.cdc.history:
                merge = merge_versions(settings, given, written, current, as_of)
                return merge, f"cdc: versions of {keys} by {history_of(settings).told}"
            merge = merge_changes(settings, given, written, current, as_of)
            by = ", ".join(settings.cdc.sequence_by if settings.cdc else ()) or "their order in the batch"
            return merge, f"cdc: the last change of {keys} by {by} wins"
        case _:
            merge = merge_by_key(settings, given, written, current)
            newer = (
                f"; rows older by {settings.watermark_column} stay out"
                if settings.strategy is Strategy.INCREMENTAL and settings.watermark_column
                else ""
            )
            return merge, matched + newer


def _anew(shape: Shape) -> Shape:
    match shape:
        case Append() | ReplaceTable() | ReplaceSlices():
            return ReplaceTable()
        case Merge():
            return replace(shape, anew=True)


def _stored(settings: MergeSettings, incoming: Sequence[Column]) -> list[Column]:
    """Without what only steers a load, with what a history adds."""
    steering = settings.cdc.operation_column.casefold() if settings.cdc and _is_cdc(settings) else None
    stored = [column for column in incoming if column.name.casefold() != steering]
    return [*stored, *history_columns(settings, incoming)]


def _given(
    settings: MergeSettings, incoming: Sequence[Column], written: Sequence[Column]
) -> tuple[Column, ...]:
    """What the label query may read: columns that are written, and those that only steer."""
    steering = {column.casefold() for names in _named(settings).values() for column in names}
    given = []
    for column in incoming:
        stored = find_column(written, column.name)
        if stored is not None:
            given.append(stored)
        elif column.name.casefold() in steering:
            given.append(column)
    return tuple(given)


def _is_cdc(settings: MergeSettings) -> bool:
    return settings.strategy is Strategy.CDC


def _named(settings: MergeSettings) -> dict[str, tuple[str, ...]]:
    """Columns of the batch that the settings name, by the field that names them."""
    named = {
        "unique_key": settings.unique_key,
        "watermark_column": (settings.watermark_column,) if settings.watermark_column else (),
        "partition_column": (settings.partition_column,) if settings.partition_column else (),
        "dedup_order_by": settings.dedup_order_by,
        "compare_columns": settings.compare_columns,
    }
    if settings.scd2.effective_from and settings.strategy in (Strategy.SCD2, Strategy.CDC):
        named["scd_effective_from"] = (settings.scd2.effective_from,)
    if settings.cdc and _is_cdc(settings):
        named["cdc.operation_column"] = (settings.cdc.operation_column,)
        named["cdc.sequence_by"] = settings.cdc.sequence_by
    return named


def _check_names(settings: MergeSettings, incoming: Sequence[Column]) -> None:
    for field, columns in _named(settings).items():
        for column in columns:
            if find_column(incoming, column) is None:
                close = get_close_matches(column, [c.name for c in incoming], n=1)
                suggestion = (
                    f"did you mean {close[0]}?"
                    if close
                    else "the batch has " + ", ".join(c.name for c in incoming)
                )
                raise PlanError(f"{field}: the batch has no column {column}", hint=suggestion)
