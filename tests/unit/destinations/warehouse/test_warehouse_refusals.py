"""Conflicting changes in a feed are refused, although most batches are not searched for them."""

from __future__ import annotations

import pytest

from tallymark.errors import TiedRows
from tallymark.model.settings import CdcSettings, MergeSettings, Strategy
from unit.destinations.databases import Database

FEED = MergeSettings(
    Strategy.CDC,
    unique_key=("k", "part"),
    cdc=CdcSettings(operation_column="op", sequence_by=("lsn",)),
)
SCHEMA = "op string, lsn bigint, k int, part string, v string"


def event(operation: str, sequence: int, key: int, value: str = "") -> dict[str, object]:
    return {"op": operation, "lsn": sequence, "k": key, "part": "p", "v": value}


def test_two_changes_with_one_sequence_are_refused(database: Database) -> None:
    with pytest.raises(TiedRows, match=r"changes of one key have the same lsn.*k=1"):
        database.load("t", FEED, SCHEMA, [event("I", 5, 1, "a"), event("U", 5, 1, "b"), event("I", 5, 2)])
    same = [event("I", 5, 1, "a"), event("U", 5, 1, "a"), event("U", 6, 1, "b")]
    assert database.load("t", FEED, SCHEMA, same).inserted == 1


@pytest.mark.parametrize("late", [event("U", 5, 1, "b"), event("D", 5, 1)])
def test_a_change_with_the_sequence_of_the_table_and_another_content_is_refused(
    database: Database, late: dict[str, object]
) -> None:
    database.load("t", FEED, SCHEMA, [event("I", 5, 1, "a"), event("I", 5, 2, "a")])
    with pytest.raises(TiedRows, match=r"same lsn as the table's row.*k=1"):
        database.load("t", FEED, SCHEMA, [late, event("U", 6, 2, "b")])
    database.sequence -= 1
    again = database.load("t", FEED, SCHEMA, [event("U", 5, 1, "a"), event("U", 6, 2, "b")])
    assert (again.unchanged, again.updated) == (1, 1)


def test_only_the_rows_of_the_batch_are_touched(database: Database) -> None:
    """Also where the labels are found against a copy of the rows with a key of the batch."""
    database.load("t", FEED, SCHEMA, [event("I", 1, key, "a") for key in range(1, 6)])
    batch = [event("U", 2, 1, "b"), event("D", 2, 2), event("I", 2, 9, "new"), event("U", 0, 3, "stale")]
    counts = database.load("t", FEED, SCHEMA, batch)
    assert (counts.updated, counts.deleted, counts.inserted, counts.skipped) == (1, 1, 1, 1)
    found = sorted((row["k"], row["v"]) for row in database.rows("t"))
    assert found == [(1, "b"), (3, "a"), (4, "a"), (5, "a"), (9, "new")]
