"""The label queries against the oracle, on generated batches, in two engines."""

from __future__ import annotations

import os

import pytest
from engine import LabelEngine
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracle import Oracle, Row, Tied, canonical
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Scd2Settings, Strategy
from tallymark.model.table import Column

EXAMPLES = int(os.environ.get("TALLYMARK_EXAMPLES", "25"))
ENGINES = ["sqlite", "duckdb"]
COLUMNS = (Column("k1", "bigint"), Column("k2", "string"), Column("value", "string"), Column("at", "bigint"))
FEED = (Column("op", "string"), *COLUMNS, Column("extra", "bigint"))
CODES = {
    Operation.INSERT: ("i",),
    Operation.UPDATE: ("u",),
    Operation.DELETE: ("d", "x"),
    Operation.TRUNCATE: ("t",),
}

values = st.none() | st.sampled_from(["x", "y"])
row = st.fixed_dictionaries(
    {
        "k1": st.integers(0, 2),
        "k2": st.sampled_from(["a", "A"]),
        "value": values,
        "at": st.none() | st.integers(0, 4),
    }
).map(lambda each: {column.name: each[column.name] for column in COLUMNS})  # in the table's order
timed = st.fixed_dictionaries(
    {"k1": st.integers(0, 1), "k2": st.just("a"), "value": values, "at": st.integers(0, 6)}
)
event = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["i", "I ", "u", "u", "U", "d", "x"]),
        "k1": st.integers(0, 1),
        "k2": st.just("a"),
        "value": values,
        "at": st.integers(0, 8),
        "extra": st.none() | st.integers(0, 2),
    }
)
truncation = st.fixed_dictionaries({"op": st.just("T"), "at": st.integers(0, 8)})
keys = st.sampled_from([("k1",), ("k1", "k2")])


def batches_of(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[list[list[Row]]]:
    return st.lists(st.lists(rows, max_size=5), min_size=1, max_size=4)


def check(engine: str, merge: MergeSettings, columns: tuple[Column, ...], batches: list[list[Row]]) -> Oracle:
    oracle, table = Oracle(merge), LabelEngine(engine, merge, columns)
    follow(oracle, table, batches)
    return oracle


def follow(oracle: Oracle, table: LabelEngine, batches: list[list[Row]]) -> None:
    for batch in batches:
        try:
            expected = oracle.load(batch)
        except Tied:
            with pytest.raises(Tied):
                table.load(batch)
            continue
        before = len(table.rows)
        counts = table.load(batch)
        assert counts == expected
        assert len(table.rows) == before + counts.inserted - counts.deleted
        assert canonical(table.rows) == canonical(oracle.rows)


KEYED = [Strategy.INSERT, Strategy.UPDATE, Strategy.UPSERT, Strategy.INCREMENTAL, Strategy.FULL_MERGE]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", KEYED)
@given(batches=batches_of(row), key=keys, mark=st.none() | st.just("at"))
@settings(max_examples=EXAMPLES, deadline=None)
def test_rows_by_key(
    engine: str, strategy: Strategy, batches: list[list[Row]], key: tuple[str, ...], mark: str | None
) -> None:
    check(engine, MergeSettings(strategy, key, watermark_column=mark), COLUMNS, batches)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", [*KEYED, Strategy.DEDUPLICATE])
@given(
    legacy=st.lists(row, max_size=8),
    batches=batches_of(row),
    order=st.sampled_from([(), ("at",), ("at", "value")]),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_legacy_tables_with_duplicates(
    engine: str, strategy: Strategy, legacy: list[Row], batches: list[list[Row]], order: tuple[str, ...]
) -> None:
    merge = MergeSettings(strategy, ("k1", "k2"), dedup_order_by=order)
    oracle, table = Oracle(merge, list(legacy)), LabelEngine(engine, merge, COLUMNS)
    table.seed(legacy)
    follow(oracle, table, batches)


@pytest.mark.parametrize("engine", ENGINES)
@given(batches=batches_of(timed), flag=st.none() | st.just("is_current"), close_absent=st.booleans())
@example(
    batches=[
        [{"k1": 0, "k2": "a", "value": "x", "at": 1}],
        [{"k1": 0, "k2": "a", "value": "y", "at": 3}],
        [{"k1": 0, "k2": "a", "value": "y", "at": 2}],
    ],
    flag=None,
    close_absent=False,
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_versions(engine: str, batches: list[list[Row]], flag: str | None, close_absent: bool) -> None:
    scd2 = Scd2Settings(effective_from="at", current_flag=flag)
    oracle = check(engine, MergeSettings(Strategy.SCD2, ("k1", "k2"), scd2=scd2), COLUMNS, batches)
    well_formed(oracle.rows)


def well_formed(rows: list[Row]) -> None:
    """No overlap, no gap that nobody made, one open version at most."""
    by_key: dict[tuple[object, ...], list[Row]] = {}
    for each in rows:
        by_key.setdefault((each["k1"], each["k2"]), []).append(each)
    for versions in by_key.values():
        versions.sort(key=lambda version: version["valid_from"])
        assert [v["valid_to"] for v in versions[:-1]] == [v["valid_from"] for v in versions[1:]]
        assert versions[-1]["valid_to"] is None


@pytest.mark.parametrize("engine", ENGINES)
@given(
    data=st.data(), times=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), unique=True, max_size=7)
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_order_of_batches_does_not_matter(
    engine: str, data: st.DataObject, times: list[tuple[int, int]]
) -> None:
    """Where every observation is a change."""
    merge = MergeSettings(Strategy.SCD2, ("k1", "k2"), scd2=Scd2Settings(effective_from="at"))
    rows = [{"k1": key, "k2": "a", "value": f"v{key}-{at}", "at": at} for key, at in times]
    forward = LabelEngine(engine, merge, COLUMNS)
    forward.load(sorted(rows, key=lambda each: each["at"]))
    shuffled = LabelEngine(engine, merge, COLUMNS)
    for each in data.draw(st.permutations(rows)):
        shuffled.load([each])
    assert canonical(forward.rows) == canonical(shuffled.rows)


@pytest.mark.parametrize("engine", ENGINES)
@given(
    batches=batches_of(event), partial=st.booleans(), sequence=st.sampled_from([(), ("at",), ("at", "extra")])
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_changes(engine: str, batches: list[list[Row]], partial: bool, sequence: tuple[str, ...]) -> None:
    if partial and "extra" in sequence:
        sequence = ("at",)  # a sequence is never missing
    for each in (each for batch in batches for each in batch):
        if "extra" in sequence and each["extra"] is None:
            each["extra"] = 0
    feed = CdcSettings("op", sequence, CODES, partial=partial)
    check(engine, MergeSettings(Strategy.CDC, ("k1", "k2"), cdc=feed), FEED, batches)


@pytest.mark.parametrize("engine", ENGINES)
@given(
    batches=batches_of(st.one_of(event, event, truncation)), partial=st.booleans(), sequenced=st.booleans()
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_changes_with_truncates(
    engine: str, batches: list[list[Row]], partial: bool, sequenced: bool
) -> None:
    feed = CdcSettings("op", ("at",) if sequenced else (), CODES, partial=partial)
    if sequenced:
        for batch in batches:  # a truncate and a change with one number: nobody can say which came first
            cuts = {each["at"] for each in batch if each["op"] == "T"}
            batch[:] = [each for each in batch if each["op"] == "T" or each["at"] not in cuts]
    check(engine, MergeSettings(Strategy.CDC, ("k1", "k2"), cdc=feed), FEED, batches)


@pytest.mark.parametrize("engine", ENGINES)
@given(
    data=st.data(),
    times=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 9), st.booleans()),
        unique_by=lambda each: each[:2],
        max_size=7,
    ),
    truncated_at=st.none() | st.just(20),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_history_of_changes_does_not_depend_on_their_order(
    engine: str, data: st.DataObject, times: list[tuple[int, int, bool]], truncated_at: int | None
) -> None:
    """Deletes close versions, also those that come after them."""
    feed = CdcSettings("op", ("at",), CODES, history=True)
    merge = MergeSettings(Strategy.CDC, ("k1", "k2"), cdc=feed)
    rows: list[Row] = [
        {
            "op": "d" if deletes else "u",
            "k1": key,
            "k2": "a",
            "value": f"v{key}-{at}",
            "at": at,
            "extra": None,
        }
        for key, at, deletes in times
    ]
    if truncated_at is not None:
        rows.append({"op": "t", "at": truncated_at})
    expected = _history(times, truncated_at)
    for batches in ([rows], [[each] for each in data.draw(st.permutations(rows))]):
        table = LabelEngine(engine, merge, FEED)
        for batch in batches:
            table.load(batch)
        found = {(r["k1"], r["valid_from"]): r["valid_to"] for r in table.rows}
        assert found == expected
        assert len(table.rows) == len(found)


def _history(
    times: list[tuple[int, int, bool]], truncated_at: int | None
) -> dict[tuple[int, int], int | None]:
    """Every change starts a version, and whatever comes next for its key ends it."""
    ends: dict[tuple[int, int], int | None] = {}
    for key, at, deletes in times:
        if not deletes:
            later = [other for k, other, _ in times if k == key and other > at]
            ends[key, at] = min(later, default=truncated_at)
    return ends
