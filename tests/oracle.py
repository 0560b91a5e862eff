"""What each strategy means, in plain Python: rows are dicts, a table is a list of them.

This is the table of DESIGN section 4 a second time, written as differently from the product as can be, so
that both being wrong in the same way is unlikely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallymark.model.receipt import Counts
from tallymark.model.settings import MergeSettings, Strategy

Row = dict[str, Any]


def apply_batch(
    table: Sequence[Row], batch: Sequence[Row], settings: MergeSettings
) -> tuple[list[Row], Counts]:
    match settings.strategy:
        case Strategy.APPEND_ONLY:
            return [*table, *batch], Counts(inserted=len(batch), total=len(batch))
        case Strategy.FULL_REFRESH:
            return list(batch), Counts(inserted=len(batch), deleted=len(table), total=len(batch))
        case Strategy.UPSERT | Strategy.INCREMENTAL:
            return _upsert(table, batch, settings)
        case other:
            raise NotImplementedError(other)


def _upsert(table: Sequence[Row], batch: Sequence[Row], settings: MergeSettings) -> tuple[list[Row], Counts]:
    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in settings.unique_key)

    mark = settings.watermark_column

    def older(row: Row, other: Row) -> bool:
        if mark is None:
            return False
        mine, theirs = row[mark], other[mark]
        return theirs is not None and (mine is None or mine < theirs)

    winners: dict[tuple[Any, ...], Row] = {}
    for row in batch:  # in file order, then by position
        if key(row) not in winners or not older(row, winners[key(row)]):
            winners[key(row)] = row
    result = {key(row): row for row in table}
    inserted = updated = unchanged = 0
    skipped = len(batch) - len(winners)
    keeps_newer = settings.strategy is Strategy.INCREMENTAL
    for k, row in winners.items():
        if k not in result:
            inserted += 1
            result[k] = row
        elif keeps_newer and older(row, result[k]):
            skipped += 1
        elif all(_same(result[k].get(name), value) for name, value in row.items()):
            unchanged += 1
        else:
            updated += 1
            result[k] = {**result[k], **row}
    return list(result.values()), Counts(inserted, updated, 0, unchanged, skipped, 0, len(batch))


def _same(a: Any, b: Any) -> bool:
    both_nan = a != a and b != b
    return both_nan or a == b


def canonical(rows: Sequence[Row]) -> list[Any]:
    """Rows as a sorted multiset; a missing column and NULL are the same."""
    names = sorted({name for row in rows for name in row})
    return sorted(
        repr([(name, _plain(row.get(name))) for name in names if row.get(name) is not None]) for row in rows
    )


def _plain(value: Any) -> Any:
    return 0.0 if value == 0 and isinstance(value, float) else value
