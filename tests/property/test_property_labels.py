"""The label queries against the oracle, on generated batches, in two engines."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from generated import CODES, COLUMNS, FEED, batches_of, event, row, timed, truncation
from oracle import Oracle, Row, Tied, canonical
from property.engine import AS_OF, MOMENT, LabelEngine
from tallymark.model.settings import CdcSettings, MergeSettings, Scd2Settings, Strategy
from tallymark.model.table import Column

EXAMPLES = int(os.environ.get("TALLYMARK_EXAMPLES", "25"))
engines = st.sampled_from(["sqlite"] * 9 + ["duckdb"])  # DuckDB takes ten times as long
keys = st.sampled_from([("k1",), ("k1", "k2")])


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


@pytest.mark.parametrize("strategy", KEYED)
@given(engine=engines, batches=batches_of(row), key=keys, mark=st.none() | st.just("at"))
@settings(max_examples=EXAMPLES, deadline=None)
def test_rows_by_key(
    engine: str, strategy: Strategy, batches: list[list[Row]], key: tuple[str, ...], mark: str | None
) -> None:
    check(engine, MergeSettings(strategy, key, watermark_column=mark), COLUMNS, batches)


@pytest.mark.parametrize("strategy", [*KEYED, Strategy.DEDUPLICATE])
@given(
    engine=engines,
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


@given(
    engine=engines,
    batches=batches_of(timed),
    flag=st.none() | st.just("is_current"),
)
@example(
    engine="duckdb",
    batches=[
        [{"k1": 0, "k2": "a", "value": "x", "at": 1}],
        [{"k1": 0, "k2": "a", "value": "y", "at": 3}],
        [{"k1": 0, "k2": "a", "value": "y", "at": 2}],
    ],
    flag=None,
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_versions(engine: str, batches: list[list[Row]], flag: str | None) -> None:
    scd2 = Scd2Settings(effective_from="at", current_flag=flag)
    oracle = check(engine, MergeSettings(Strategy.SCD2, ("k1", "k2"), scd2=scd2), COLUMNS, batches)
    well_formed(oracle.rows)


@given(engine=engines, batches=batches_of(timed), close_absent=st.booleans())
@settings(max_examples=EXAMPLES, deadline=None)
def test_versions_by_the_time_of_the_load(engine: str, batches: list[list[Row]], close_absent: bool) -> None:
    scd2 = Scd2Settings(close_absent=close_absent)
    merge = MergeSettings(Strategy.SCD2, ("k1", "k2"), watermark_column="at", scd2=scd2)
    oracle, table = Oracle(merge), LabelEngine(engine, merge, COLUMNS)
    for hours, batch in enumerate(batches):
        as_of = AS_OF + timedelta(hours=hours)
        moment: Any = as_of.strftime(MOMENT)
        try:
            expected = oracle.load(batch, moment)
        except Tied:
            continue
        assert table.load(batch, as_of) == expected
        assert canonical(table.rows) == canonical(oracle.rows)


def well_formed(rows: list[Row]) -> None:
    """No overlap, no gap that nobody made, one open version at most."""
    by_key: dict[tuple[object, ...], list[Row]] = {}
    for each in rows:
        by_key.setdefault((each["k1"], each["k2"]), []).append(each)
    for versions in by_key.values():
        versions.sort(key=lambda version: version["valid_from"])
        assert [v["valid_to"] for v in versions[:-1]] == [v["valid_from"] for v in versions[1:]]
        assert versions[-1]["valid_to"] is None


@given(
    engine=engines,
    data=st.data(),
    times=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), unique=True, max_size=7),
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


@given(
    engine=engines,
    batches=batches_of(event),
    partial=st.booleans(),
    sequence=st.sampled_from([(), ("at",), ("at", "extra")]),
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


@given(
    engine=engines,
    batches=batches_of(st.one_of(event, event, truncation)),
    partial=st.booleans(),
    sequenced=st.booleans(),
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


def change(op: str, at: int, value: str | None = "new", key: int = 1) -> Row:
    return {"op": op, "k1": key, "k2": "a", "value": value, "at": at, "extra": None}


LATE = {
    "older than a delete": [[change("i", 5)], [change("d", 7)], [change("u", 6)]],
    "with the number of a delete": [[change("i", 5)], [change("d", 7)], [change("u", 7)]],
    "newer than a delete": [[change("i", 5)], [change("d", 7)], [change("u", 8)]],
    "before its delete": [[change("d", 7)], [change("i", 5)]],
    "older than a truncate": [[change("i", 5)], [{"op": "t", "at": 9}], [change("u", 8, key=0)]],
    "with the number of a truncate": [[change("i", 5)], [{"op": "t", "at": 9}], [change("u", 9, key=0)]],
    "newer than a truncate": [[change("i", 5)], [{"op": "t", "at": 9}], [change("u", 10)]],
    "older than the row": [[change("u", 5)], [change("u", 4, "old")], [change("d", 4)]],
    "without its value, after a delete": [[change("i", 5)], [change("d", 7), change("u", 8, None)]],
    "with the number of the row": [[change("u", 5)], [change("u", 5, "other")], [change("d", 5)]],
}
ENDS_IN_A_ROW = {
    "newer than a delete",
    "newer than a truncate",
    "older than the row",
    "without its value, after a delete",
    "with the number of the row",
}


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("case", LATE)
def test_late_changes(engine: str, partial: bool, case: str) -> None:
    """What generated batches meet only now and then."""
    feed = CdcSettings("op", ("at",), CODES, partial=partial)
    oracle = check(engine, MergeSettings(Strategy.CDC, ("k1", "k2"), cdc=feed), FEED, LATE[case])
    assert len(oracle.rows) == (case in ENDS_IN_A_ROW)


@given(
    engine=engines,
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
