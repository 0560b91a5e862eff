"""How much a load may delete, and that every row is accounted for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tallymark.destinations.contract import DuplicatesFound
from tallymark.errors import CountsDoNotBalance, GuardTripped
from tallymark.flow.load import balanced, refuse_deletes
from tallymark.model.receipt import Counts

DUPLICATES = DuplicatesFound(rows=60, keys=3, sample=())


@pytest.mark.parametrize(
    ("limit", "deleted", "rows", "duplicates", "stops"),
    [
        (0.5, 50, 100, None, False),
        (0.5, 51, 100, None, True),
        (0.0, 1, 100, None, True),
        (0.0, 0, 100, None, False),
        (0.5, 0, 0, None, False),
        (None, 100, 100, None, False),
        (0.1, 65, 100, DUPLICATES, False),  # the removal of duplicates is no loss
        (0.1, 75, 100, DUPLICATES, True),
    ],
)
def test_the_guard(
    limit: float | None, deleted: int, rows: int, duplicates: DuplicatesFound | None, stops: bool
) -> None:
    plan: Any = SimpleNamespace(table="t", max_delete_fraction=limit, warnings=())
    prepared: Any = SimpleNamespace(counts=Counts(deleted=deleted), table_rows=rows, duplicates=duplicates)
    refuse_deletes(plan, prepared, allowed=True)
    if stops:
        with pytest.raises(GuardTripped, match=f"of {rows} rows"):
            refuse_deletes(plan, prepared, allowed=False)
    else:
        refuse_deletes(plan, prepared, allowed=False)


def test_every_row_that_was_read_is_planned_or_rejected() -> None:
    checked: Any = SimpleNamespace(total=10, rejected=3)
    assert balanced(Counts(inserted=7, total=7), checked) == Counts(inserted=7, rejected=3, total=10)
    for planned in (6, 8):
        with pytest.raises(CountsDoNotBalance, match="10 rows were read"):
            balanced(Counts(inserted=planned, total=planned), checked)
