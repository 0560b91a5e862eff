"""Rows of a legacy table that share their key: how they are found, and which one stays."""

from __future__ import annotations

from collections.abc import Sequence

from tallymark.model.plan import COPIES, CURRENT, Duplicates
from tallymark.model.settings import MergeSettings, OnTargetDuplicates, Strategy
from tallymark.model.table import Column, TableShape
from tallymark.strategies.sql import latest_first, name, names, parse, resolved

_COPY = "_tm_copy"
_ORDERABLE = ("array<", "map<", "struct<", "json", "variant")


def duplicates_of(
    match: Sequence[str],
    columns: Sequence[Column],
    current: TableShape | None,
    settings: MergeSettings,
    declared_order: Sequence[str],
) -> Duplicates:
    """The last by the declared order survives, then the greatest by its values: the same on every engine
    for plain types. A row with a NULL in its key is nobody's duplicate."""
    held = current.columns if current is not None else tuple(columns)
    plain = [c for c in held if not c.type.startswith(_ORDERABLE)]
    order = resolved(held, [*declared_order, *(c.name for c in plain)])
    whole = " AND ".join(f"{name(key)} IS NOT NULL" for key in match)
    keys = f"""
        SELECT {names(match)}, COUNT(*) AS {name(COPIES)} FROM {name(CURRENT)} WHERE {whole}
        GROUP BY {names(match)} HAVING COUNT(*) > 1
    """
    survivors = f"""
        SELECT {names(c.name for c in held)}
        FROM (
          SELECT *, ROW_NUMBER() OVER (
            PARTITION BY {names(match)} ORDER BY {latest_first(order)}) AS {name(_COPY)}
          FROM {name(CURRENT)}
        ) AS ranked
        WHERE {name(_COPY)} = 1 OR NOT ({whole})
    """
    known_unique = current is None or _same_names(current.unique_by, match)
    repair = (
        settings.strategy is Strategy.DEDUPLICATE
        or settings.on_target_duplicates is OnTargetDuplicates.REPAIR
    )
    return Duplicates(parse(keys), parse(survivors), whole_table=not known_unique, repair=repair)


def _same_names(left: Sequence[str], right: Sequence[str]) -> bool:
    return {n.casefold() for n in left} == {n.casefold() for n in right}
