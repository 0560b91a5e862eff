"""Rows for hypothesis: few keys, values and times, so that they meet."""

from __future__ import annotations

from hypothesis import strategies as st

from oracle import Row
from tallymark.model.settings import Operation
from tallymark.model.table import Column

COLUMNS = (Column("k1", "bigint"), Column("k2", "string"), Column("value", "string"), Column("at", "bigint"))
FEED = (Column("op", "string"), *COLUMNS, Column("extra", "bigint"))
CODES = {
    Operation.INSERT: ("i",),
    Operation.UPDATE: ("u",),
    Operation.DELETE: ("d", "x"),
    Operation.TRUNCATE: ("t",),
}

_values = st.none() | st.sampled_from(["x", "y"])
row: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "k1": st.integers(0, 2),
        "k2": st.sampled_from(["a", "A"]),
        "value": _values,
        "at": st.none() | st.integers(0, 4),
    }
).map(lambda each: {column.name: each[column.name] for column in COLUMNS})  # in the table's order
timed: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {"k1": st.integers(0, 1), "k2": st.just("a"), "value": _values, "at": st.integers(0, 6)}
)
event: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["i", "I ", "u", "u", "U", "d", "x"]),
        "k1": st.integers(0, 1),
        "k2": st.just("a"),
        "value": _values,
        "at": st.integers(0, 8),
        "extra": st.none() | st.integers(0, 2),
    }
)
truncation: st.SearchStrategy[Row] = st.fixed_dictionaries({"op": st.just("T"), "at": st.integers(0, 8)})


def batches_of(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[list[list[Row]]]:
    return st.lists(st.lists(rows, max_size=5), min_size=1, max_size=4)
