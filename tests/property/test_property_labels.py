"""The label query against the oracle, on generated tables and batches. It runs in SQLite here: the query is
written once for all engines, and thousands of examples need no Spark."""

from __future__ import annotations

import sqlite3

from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import Row, apply_batch, canonical
from tallymark.model.plan import FILE_ORDER, LABEL, ROW_BLOCK, ROW_ORDER, Label, Merge
from tallymark.model.receipt import Counts
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column, TableShape
from tallymark.strategies.build import build_plan

COLUMNS = (Column("k1", "bigint"), Column("k2", "string"), Column("value", "string"), Column("at", "bigint"))
NAMES = [column.name for column in COLUMNS]

rows = st.fixed_dictionaries(
    {
        "k1": st.integers(0, 3),
        "k2": st.sampled_from(["a", "A", ""]),
        "value": st.none() | st.sampled_from(["x", "y"]),
        "at": st.none() | st.integers(0, 3),
    }
)
merges = st.builds(
    MergeSettings,
    strategy=st.sampled_from([Strategy.UPSERT, Strategy.INCREMENTAL]),
    unique_key=st.sampled_from([("k1",), ("k1", "k2")]),
    watermark_column=st.none() | st.just("at"),
)


@given(table=st.lists(rows, max_size=8), batch=st.lists(rows, max_size=8), merge=merges)
@settings(max_examples=300, deadline=None)
def test_labels_say_what_the_oracle_does(table: list[Row], batch: list[Row], merge: MergeSettings) -> None:
    table = list({tuple(row[key] for key in merge.unique_key): row for row in table}.values())
    expected_rows, expected_counts = apply_batch(table, batch, merge)
    labelled = label(table, batch, merge)
    assert counts(labelled) == expected_counts
    assert canonical(written(table, labelled, merge)) == canonical(expected_rows)


def label(table: list[Row], batch: list[Row], merge: MergeSettings) -> list[Row]:
    """Every row of the batch is a file of its own: ties are then decided by order, as the oracle does."""
    plan = build_plan("t", merge, COLUMNS, TableShape(COLUMNS, "1"))
    assert isinstance(plan.shape, Merge)
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    names = ", ".join(NAMES)
    connection.execute(f"CREATE TABLE current ({names})")
    connection.execute(f"CREATE TABLE incoming ({names}, {FILE_ORDER}, {ROW_BLOCK}, {ROW_ORDER})")
    connection.executemany("INSERT INTO current VALUES (?, ?, ?, ?)", [[r[n] for n in NAMES] for r in table])
    incoming = [[*(row[n] for n in NAMES), number, 0, 0] for number, row in enumerate(batch)]
    connection.executemany("INSERT INTO incoming VALUES (?, ?, ?, ?, ?, ?, ?)", incoming)
    return [dict(row) for row in connection.execute(plan.shape.labels.sql(dialect="sqlite"))]


def counts(labelled: list[Row]) -> Counts:
    number = {each: sum(row[LABEL] == each for row in labelled) for each in Label}
    return Counts(
        inserted=number[Label.INSERT],
        updated=number[Label.UPDATE],
        unchanged=number[Label.UNCHANGED],
        skipped=number[Label.SKIP],
        total=len(labelled),
    )


def written(table: list[Row], labelled: list[Row], merge: MergeSettings) -> list[Row]:
    result = {tuple(row[key] for key in merge.unique_key): row for row in table}
    for row in labelled:
        if row[LABEL] in (Label.INSERT, Label.UPDATE):
            result[tuple(row[key] for key in merge.unique_key)] = {name: row[name] for name in NAMES}
    return list(result.values())
