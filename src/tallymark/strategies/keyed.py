"""Strategies that compare rows by key, as a table of allowed actions; and repeated keys in the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tallymark.model.plan import (
    COPIES,
    CURRENT,
    FILE_ORDER,
    FROM_BATCH,
    INCOMING,
    LABEL,
    POSITION,
    Duplicates,
    Label,
    Merge,
    Refusal,
)
from tallymark.model.settings import MergeSettings, OnTargetDuplicates, Strategy
from tallymark.model.table import Column, TableShape, find_column, is_provenance
from tallymark.strategies.columns import (
    any_differs,
    comparable,
    compared,
    in_table,
    latest_first,
    name,
    names,
    older,
    parse,
    rank,
    resolved,
    same_key,
)

_RANK = "_tm_rank"
_PRESENT = "_tm_present"
TABLE_ROW = "c"  # the alias of the table's row in label queries
_COPY = "_tm_copy"
# Types that engines sort differently, or not at all.
_WITHOUT_ORDER = ("array<", "map<", "struct<", "json", "variant")


@dataclass(frozen=True)
class Allowed:
    """The label for a key that only the batch has, for a row that differs, and for a key that only the table
    has."""

    new: Label
    changed: Label
    missing: Label | None = None  # None: kept
    keeps_newer: bool = False  # a table row that is later by the declared order stays


ALLOWED = {
    Strategy.INSERT: Allowed(new=Label.INSERT, changed=Label.SKIP),
    Strategy.UPDATE: Allowed(new=Label.SKIP, changed=Label.UPDATE),
    Strategy.UPSERT: Allowed(new=Label.INSERT, changed=Label.UPDATE),
    Strategy.INCREMENTAL: Allowed(new=Label.INSERT, changed=Label.UPDATE, keeps_newer=True),
    Strategy.DEDUPLICATE: Allowed(new=Label.INSERT, changed=Label.UPDATE, keeps_newer=True),
    Strategy.FULL_MERGE: Allowed(new=Label.INSERT, changed=Label.UPDATE, missing=Label.DELETE),
}


def merge_by_key(
    settings: MergeSettings, given: Sequence[Column], written: Sequence[Column], current: TableShape | None
) -> Merge:
    keys = settings.unique_key
    order = resolved(given, declared_order(settings))
    values, label = _written(given, written), _label(settings, order, given, current)
    labels = f"""
        SELECT {values}, CASE {label} END AS {name(LABEL)}, TRUE AS {name(FROM_BATCH)}
        FROM {_ranked(keys, order)} AS i LEFT JOIN {_present()} AS {TABLE_ROW} ON {_on_key(keys)}
    """
    if ALLOWED[settings.strategy].missing is Label.DELETE:
        labels += f" UNION ALL {_missing(keys, written, current)}"
    return Merge(
        match=keys,
        labels=parse(labels),
        duplicates=duplicates_of(keys, written, current, settings, declared_order(settings)),
        refusals=(tied_rows(keys, order, given),) if order else (),
    )


def labels_by_full_join(
    settings: MergeSettings, given: Sequence[Column], written: Sequence[Column], current: TableShape | None
) -> exp.Query:
    """The labels of a strategy that deletes what the batch lacks, as one join."""
    keys = settings.unique_key
    order = resolved(given, declared_order(settings))
    label = _label(settings, order, given, current)
    return parse(f"""
        SELECT {_written(given, written, current, or_missing=True)},
               CASE WHEN {name(_RANK, "i")} IS NULL THEN '{Label.DELETE}' {label} END AS {name(LABEL)},
               {name(_RANK, "i")} IS NOT NULL AS {name(FROM_BATCH)}
        FROM {_ranked(keys, order)} AS i FULL JOIN {_present()} AS {TABLE_ROW} ON {_on_key(keys)}
    """)


def _ranked(keys: Sequence[str], order: Sequence[Column]) -> str:
    return f"(SELECT *, {rank(keys, [*order, *POSITION])} AS {name(_RANK)} FROM {name(INCOMING)})"


def _present() -> str:
    return f"(SELECT *, TRUE AS {name(_PRESENT)} FROM {name(CURRENT)})"


def _on_key(keys: Sequence[str]) -> str:
    return f"{name(_RANK, 'i')} = 1 AND {same_key(keys, 'i', 'c')}"


def declared_order(settings: MergeSettings) -> tuple[str, ...]:
    """The columns that decide which row of a key is the last one; then its position in the batch decides."""
    by_watermark = (settings.watermark_column,) if settings.watermark_column else ()
    if settings.strategy is Strategy.DEDUPLICATE:
        return settings.dedup_order_by or by_watermark
    return by_watermark or settings.dedup_order_by


def _label(
    settings: MergeSettings, order: Sequence[Column], given: Sequence[Column], current: TableShape | None
) -> str:
    allowed = ALLOWED[settings.strategy]
    stale = ""
    held = [column for column in order if in_table(current, column.name)]
    if allowed.keeps_newer and held:
        stale = f"WHEN {older(held, 'i', 'c')} THEN '{Label.SKIP}'"
    differs = any_differs(compared(settings, given), "i", "c", current) if settings.skip_unchanged else "TRUE"
    return f"""
        WHEN {name(_RANK, "i")} > 1 THEN '{Label.SKIP}'
        WHEN {name(_PRESENT, "c")} IS NULL THEN '{allowed.new}'
        {stale}
        WHEN {differs} THEN '{allowed.changed}'
        ELSE '{Label.UNCHANGED}'
    """


def _written(
    given: Sequence[Column],
    written: Sequence[Column],
    current: TableShape | None = None,
    *,
    or_missing: bool = False,
) -> str:
    """Every written row is complete: a column that the batch lacks keeps the table's value, and so does a row
    that only the table has (`or_missing`)."""

    def value(column: Column) -> str:
        mine, theirs = name(column.name, "i"), name(column.name, "c")
        if find_column(given, column.name) is None:
            return theirs
        if or_missing and in_table(current, column.name):
            return f"CASE WHEN {name(_RANK, 'i')} IS NULL THEN {theirs} ELSE {mine} END"
        return mine

    return ", ".join(f"{value(column)} AS {name(column.name)}" for column in written)


def _missing(keys: Sequence[str], written: Sequence[Column], current: TableShape | None) -> str:
    values = ", ".join(
        f"{name(c.name, 'c') if in_table(current, c.name) else 'NULL'} AS {name(c.name)}" for c in written
    )
    return f"""
        SELECT {values}, '{Label.DELETE}' AS {name(LABEL)}, FALSE AS {name(FROM_BATCH)}
        FROM {name(CURRENT)} AS c
        LEFT JOIN (SELECT DISTINCT {names(keys)}, TRUE AS {name(_PRESENT)} FROM {name(INCOMING)}) AS k
          ON {same_key(keys, "c", "k")}
        WHERE {name(_PRESENT, "k")} IS NULL
    """


def tied_rows(keys: Sequence[str], order: Sequence[Column], given: Sequence[Column]) -> Refusal:
    """Refuses two different rows of one file with the same key and the same declared order.

    Rows of different files are ordered by file, as if each file were a batch of its own."""
    contents = [c for c in given if not is_provenance(c.name)]
    values = ", ".join(f"{comparable(c, name(c.name))} AS {name(c.name)}" for c in contents)
    file = Column(FILE_ORDER, "int")
    found = f"""
        SELECT {names(keys)} FROM (
          SELECT DISTINCT {values} FROM (
            SELECT *, RANK() OVER (
              PARTITION BY {names(keys)} ORDER BY {latest_first([*order, file])}
            ) AS {name(_RANK)}
            FROM {name(INCOMING)}
          ) AS ranked WHERE {name(_RANK)} = 1
        ) AS tops
        GROUP BY {names(keys)} HAVING COUNT(*) > 1
    """
    return Refusal(
        parse(found),
        "rows of one file differ, but are equal in key and declared order",
        "declare an order that is different for each of them, or deliver one row for each key and time",
        shows_as=Label.SKIP,
        among=tuple(keys),
    )


def duplicates_of(
    match: Sequence[str],
    columns: Sequence[Column],
    current: TableShape | None,
    settings: MergeSettings,
    declared_order: Sequence[str],
) -> Duplicates:
    """How rows of a legacy table that share their match are found, and which one survives: the last by the
    declared order, then the greatest by its values, which is the same on every engine for plain types. A row
    with NULL in its key is not a duplicate."""
    held = current.columns if current is not None else tuple(columns)
    plain = [c for c in held if not c.type.startswith(_WITHOUT_ORDER)]
    order = resolved(held, [*declared_order, *(c.name for c in plain)])
    has_key = " AND ".join(f"{name(key)} IS NOT NULL" for key in match)
    keys = f"""
        SELECT {names(match)}, COUNT(*) AS {name(COPIES)} FROM {name(CURRENT)} WHERE {has_key}
        GROUP BY {names(match)} HAVING COUNT(*) > 1
    """
    survivors = f"""
        SELECT {names(c.name for c in held)}
        FROM (
          SELECT *, ROW_NUMBER() OVER (
            PARTITION BY {names(match)} ORDER BY {latest_first(order)}) AS {name(_COPY)}
          FROM {name(CURRENT)}
        ) AS ranked
        WHERE {name(_COPY)} = 1 OR NOT ({has_key})
    """
    known_unique = current is None or _same_names(current.unique_by, match)
    repair = (
        settings.strategy is Strategy.DEDUPLICATE
        or settings.on_target_duplicates is OnTargetDuplicates.REPAIR
    )
    return Duplicates(parse(keys), parse(survivors), whole_table=not known_unique, repair=repair)


def _same_names(left: Sequence[str], right: Sequence[str]) -> bool:
    return {n.casefold() for n in left} == {n.casefold() for n in right}
