"""From declared settings and the table's shape to a plan. Pure: no Spark, no destination, no clock.

1. effective_settings   the strategy that counts: a missing field makes it fall back, under the delete guard
2. written columns      what the load writes, and how the table's schema changes for it (`columns.py`)
3. shape                the write shape, with the label query of a merge (`keyed.py`, `cdc.py`, `scd2.py`)
4. hints                what makes the merge faster; without them it gives the same rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches

from tallymark.errors import PlanError
from tallymark.model.plan import (
    Append,
    Hints,
    KeyRange,
    Label,
    Merge,
    Plan,
    ReadFirst,
    ReplaceSlices,
    ReplaceTable,
    Shape,
)
from tallymark.model.settings import MergeSettings, RepeatedContent, Strategy
from tallymark.model.table import Column, TableShape, find_column
from tallymark.strategies.cdc import has_truncate, merge_changes
from tallymark.strategies.columns import compared, in_table, resolved, written_columns
from tallymark.strategies.keyed import (
    ALLOWED,
    TABLE_ROW,
    declared_order,
    labels_by_full_join,
    merge_by_key,
)
from tallymark.strategies.scd2 import history_columns, history_of, keeps_history, merge_versions

# Strategies for which two files in one batch give another result than one batch after the other.
_ONE_FILE_PER_BATCH = frozenset(
    {Strategy.FULL_REFRESH, Strategy.FULL_MERGE, Strategy.SNAPSHOT, Strategy.DELETE_INSERT}
)

# Strategies for which a file is a state: it says what the table, or a part of it, is from now on.
_STATES = frozenset({Strategy.FULL_REFRESH, Strategy.FULL_MERGE, Strategy.SNAPSHOT})

# Strategies whose result does not depend on the order of the batches.
ORDER_FREE = frozenset({Strategy.APPEND_ONLY})

NEEDS: dict[Strategy, tuple[str, ...]] = {
    Strategy.FULL_REFRESH: (),
    Strategy.APPEND_ONLY: (),
    Strategy.INSERT: ("unique_key",),
    Strategy.UPDATE: ("unique_key",),
    Strategy.UPSERT: ("unique_key",),
    Strategy.INCREMENTAL: ("unique_key",),
    Strategy.DEDUPLICATE: ("unique_key",),
    Strategy.FULL_MERGE: ("unique_key",),
    Strategy.DELETE_INSERT: ("unique_key",),
    Strategy.SNAPSHOT: ("partition_column",),
    Strategy.SCD2: ("unique_key",),
    Strategy.CDC: ("unique_key", "cdc"),
}

DEFAULT_DELETE_GUARD = 0.5

_TIMES = ("timestamp", "timestamp_ntz", "date")
_DECIDING_ORDERS = (*_TIMES, "tinyint", "smallint", "int", "bigint")  # types with one notation for each value


@dataclass(frozen=True)
class EffectiveSettings:
    """The settings that count, after a missing field made the strategy fall back."""

    settings: MergeSettings
    max_delete_fraction: float | None
    warnings: tuple[str, ...] = ()


def effective_settings(declared: MergeSettings) -> EffectiveSettings:
    """Raises PlanError if a field that the strategy needs is missing and `strict` is on."""
    strategy, guard = declared.strategy, declared.max_delete_fraction
    missing = [field for field in NEEDS[strategy] if not getattr(declared, field)]
    if missing:
        return _fall_back(declared, missing)
    if guard is None and strategy is Strategy.FULL_MERGE:
        guard = DEFAULT_DELETE_GUARD
    return EffectiveSettings(declared, guard)


def _fall_back(declared: MergeSettings, missing: list[str]) -> EffectiveSettings:
    """To `full_refresh`, but under the delete guard: a forgotten field never empties a table."""
    what, guard = " and ".join(missing), declared.max_delete_fraction
    if declared.strict:
        raise PlanError(
            f"merge_strategy {declared.strategy} needs {what}, and strict is on",
            hint=f"add {what} to the pipeline's config.yaml",
        )
    return EffectiveSettings(
        replace(declared, strategy=Strategy.FULL_REFRESH),
        DEFAULT_DELETE_GUARD if guard is None else guard,
        (f"merge_strategy {declared.strategy} needs {what}: falls back to full_refresh",),
    )


def takes_one_file_per_batch(settings: MergeSettings) -> bool:
    """Whether each file gets a batch of its own, unless the user sets how many files belong together."""
    versions_by_load_time = settings.strategy is Strategy.SCD2 and (
        settings.scd2.effective_from is None or settings.scd2.close_absent
    )
    return versions_by_load_time or settings.strategy in _ONE_FILE_PER_BATCH


def default_for_repeats(settings: MergeSettings) -> RepeatedContent:
    """A state that comes back is applied. Changes that come back are old news: they are not."""
    is_state = settings.strategy in _STATES or (
        settings.strategy is Strategy.SCD2 and settings.scd2.close_absent
    )
    return RepeatedContent.APPLY if is_state else RepeatedContent.SKIP


def build_plan(
    table: str,
    declared: MergeSettings,
    incoming: Sequence[Column],
    current: TableShape | None,
    *,
    as_of: datetime,
    table_properties: Mapping[str, str] | None = None,
    rebuild: bool = False,
    key_ranges: tuple[KeyRange, ...] = (),
) -> Plan:
    """`incoming` are the batch's columns, in the types in which the destination would store them. With
    `rebuild` the table becomes what the strategy would make of the batch in an empty table."""
    effective = effective_settings(declared)
    settings = effective.settings
    _check_names(settings, incoming)
    written = written_columns(
        _stored(settings, incoming),
        current,
        settings.schema_evolution,
        may_change_types=rebuild or settings.strategy is Strategy.FULL_REFRESH,
    )
    given = _given(settings, incoming, written.columns)
    settings = _as_spelled(settings, [*given, *written.columns])
    compared_with = None if rebuild else current
    shape, reason = _shape(settings, given, written.columns, compared_with, as_of)
    hints = _hints(settings, given, written.columns, compared_with) if isinstance(shape, Merge) else Hints()
    if rebuild:
        shape, reason = _rebuilt(shape), f"full refresh of {reason}"
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
        max_delete_fraction=None if rebuild else effective.max_delete_fraction,
        partition_by=(settings.partition_column,) if settings.partition_column and current is None else (),
        table_properties=dict(table_properties or {}),
        hints=replace(hints, key_ranges=key_ranges),
        warnings=effective.warnings,
    )


def _shape(
    settings: MergeSettings,
    given: Sequence[Column],
    written: Sequence[Column],
    current: TableShape | None,
    as_of: datetime,
) -> tuple[Shape, str]:
    """The shape, and why it was chosen, in words for the user."""
    keys = ", ".join(settings.unique_key)
    match settings.strategy:
        case Strategy.FULL_REFRESH:
            return ReplaceTable(), "full_refresh: the rows of the batch replace the table"
        case Strategy.APPEND_ONLY:
            return Append(), "append_only: every row of the batch is added"
        case Strategy.DELETE_INSERT:
            return ReplaceSlices(settings.unique_key), f"delete_insert: rows are replaced by {keys}"
        case Strategy.SNAPSHOT:
            column = str(settings.partition_column)
            return ReplaceSlices((column,)), f"snapshot: partitions of {column} are replaced as a whole"
        case Strategy.SCD2:
            versions = merge_versions(settings, given, written, current, as_of)
            return versions, f"scd2: versions of {keys} by {history_of(settings).time_in_words}"
        case Strategy.CDC:
            if settings.cdc is not None and settings.cdc.history:
                versions = merge_versions(settings, given, written, current, as_of)
                return versions, f"cdc: versions of {keys} by {history_of(settings).time_in_words}"
            by = ", ".join(settings.cdc.sequence_by if settings.cdc else ()) or "their order in the batch"
            changes = merge_changes(settings, given, written, current, as_of)
            return changes, f"cdc: the last change of {keys} by {by} wins"
        case _:
            skipped = (
                f"; rows older by {settings.watermark_column} are skipped"
                if settings.strategy is Strategy.INCREMENTAL and settings.watermark_column
                else ""
            )
            merge = merge_by_key(settings, given, written, current)
            return merge, f"{settings.strategy}: rows are matched by {keys}{skipped}"


def _rebuilt(shape: Shape) -> Shape:
    match shape:
        case Append() | ReplaceTable() | ReplaceSlices():
            return ReplaceTable()
        case Merge():
            return replace(shape, rebuilds=True)


def _hints(
    settings: MergeSettings, given: Sequence[Column], written: Sequence[Column], current: TableShape | None
) -> Hints:
    allowed = ALLOWED.get(settings.strategy)  # None for feeds and histories
    deletes_missing = allowed is not None and allowed.missing is Label.DELETE
    updates_one_row = allowed is not None and allowed.changed is Label.UPDATE and not deletes_missing
    return Hints(
        batch_keys=() if deletes_missing or _affects_other_keys(settings) else settings.unique_key,
        updated_row=TABLE_ROW if updates_one_row else "",
        full_join=labels_by_full_join(settings, given, written, current) if deletes_missing else None,
        read_first=_read_first(settings, given, written, current),
    )


def _affects_other_keys(settings: MergeSettings) -> bool:
    """Whether a feed or history may change rows whose keys the batch does not have."""
    closes_absent = settings.strategy is Strategy.SCD2 and settings.scd2.close_absent
    return closes_absent or (_is_cdc(settings) and settings.cdc is not None and has_truncate(settings.cdc))


def _read_first(
    settings: MergeSettings, given: Sequence[Column], written: Sequence[Column], current: TableShape | None
) -> ReadFirst | None:
    """A row that changed nearly always differs in a column of the declared order, or else in a time. None if
    there is no such column, or if labels or written rows need values of other columns of the table."""
    keeps_values = any(find_column(given, column.name) is None for column in written)
    feed = settings.cdc if _is_cdc(settings) else None
    compares = not feed.partial if feed else settings.skip_unchanged
    if keeps_values or keeps_history(settings) or not compares:
        return None
    order = feed.sequence_by if feed else declared_order(settings)
    held = [column for column in resolved(given, order) if in_table(current, column.name)]
    comparing = [column for column in compared(settings, given) if in_table(current, column.name)]
    deciding = [column for column in held if column in comparing and column.type in _DECIDING_ORDERS]
    deciding += [column for column in comparing if column.type in _TIMES]
    return ReadFirst(deciding[0].name, tuple(column.name for column in held)) if deciding else None


def _stored(settings: MergeSettings, incoming: Sequence[Column]) -> list[Column]:
    """Without the operation column of a feed, which is not stored; with the columns that a history adds."""
    operation = settings.cdc.operation_column.casefold() if settings.cdc and _is_cdc(settings) else None
    stored = [column for column in incoming if column.name.casefold() != operation]
    return [*stored, *history_columns(settings, incoming)]


def _given(
    settings: MergeSettings, incoming: Sequence[Column], written: Sequence[Column]
) -> tuple[Column, ...]:
    """The columns that the label query may read: those that are written, and those that settings name."""
    named = {column.casefold() for names in _named(settings).values() for column in names}
    given = []
    for column in incoming:
        stored = find_column(written, column.name)
        if stored is not None:
            given.append(stored)
        elif column.name.casefold() in named:
            given.append(column)
    return tuple(given)


def _as_spelled(settings: MergeSettings, columns: Sequence[Column]) -> MergeSettings:
    """Names of columns as the table, or else the batch, spells them: in some databases a quoted name of
    another case is another column."""

    def spelled(name: str) -> str:
        found = find_column(columns, name)
        return name if found is None else found.name

    def each(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(spelled, names))

    def optional(name: str | None) -> str | None:
        return None if name is None else spelled(name)

    scd2, cdc = settings.scd2, settings.cdc
    return replace(
        settings,
        unique_key=each(settings.unique_key),
        watermark_column=optional(settings.watermark_column),
        partition_column=optional(settings.partition_column),
        dedup_order_by=each(settings.dedup_order_by),
        compare_columns=each(settings.compare_columns),
        scd2=replace(
            scd2,
            valid_from=spelled(scd2.valid_from),
            valid_to=spelled(scd2.valid_to),
            current_flag=optional(scd2.current_flag),
            effective_from=optional(scd2.effective_from),
        ),
        cdc=None
        if cdc is None
        else replace(cdc, operation_column=spelled(cdc.operation_column), sequence_by=each(cdc.sequence_by)),
    )


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
