"""What a SQL destination owes a load: one transaction, its markers, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from oracle import Row, canonical
from tallymark.destinations.contract import SparkRows
from tallymark.destinations.warehouse import transfer
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.errors import (
    CountsDoNotBalance,
    DestinationError,
    Fenced,
    NotATable,
    PlanError,
    RowsRefused,
    TableBusy,
    TableMoved,
    Unsupported,
)
from tallymark.model.plan import Hints, Merge, Plan, ReplaceSlices, Tombstones
from tallymark.model.settings import MergeSettings, OnTargetDuplicates, Strategy
from tallymark.model.table import Column
from unit.destinations.databases import Database, hash_of, postgres_database

APPEND = MergeSettings(Strategy.APPEND_ONLY)
UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("k",))
FULL_MERGE = MergeSettings(Strategy.FULL_MERGE, unique_key=("k",), max_delete_fraction=1)
PAIRS = "k int, v string"
ABC = [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}, {"k": 3, "v": "c"}]


def test_a_plan_leaves_nothing_behind(database: Database) -> None:
    before = database.objects() if database.kind == "postgres" else set()
    plan = database.plan(database.silver("t"), UPSERT, PAIRS)
    with database.prepare(plan, PAIRS, ABC, for_commit=False) as prepared:
        assert prepared.counts.inserted == 3
        assert "_tm_label" in prepared.sql()
        assert [sample.after for sample in prepared.samples(2)] == ABC[:2]
    if database.kind == "postgres":
        assert database.objects() == before
    else:
        assert not Path(database.where).exists()


def test_a_load_that_is_not_committed_leaves_nothing_behind(database: Database) -> None:
    database.load("t", UPSERT, PAIRS, ABC)
    before = database.objects()
    plan = database.plan("t", UPSERT, "k int, v string, w int")
    with database.prepare(plan, "k int, v string, w int", [{"k": 1}]):
        pass
    assert database.objects() == before
    assert canonical(database.rows("t")) == canonical(ABC)


@pytest.mark.parametrize("name", ["with space", 'quo"te', "größe", "select", "x" * 60, "it's; --"])
def test_odd_names_work(database: Database, name: str) -> None:
    column = name.replace('"', "'")  # Spark's own DDL has no double quotes in names
    schema = f"`{column}` int, `order` string"
    settings = MergeSettings(Strategy.UPSERT, unique_key=(column,))
    database.load(name, settings, schema, [{column: 1, "order": "a"}])
    counts = database.load(name, settings, schema, [{column: 1, "order": "b"}, {column: 2, "order": "c"}])
    assert (counts.inserted, counts.updated) == (1, 1)
    assert database.destination.table(name).markers(None).last_sequence == 2


def test_a_name_that_would_be_cut_off_is_refused(database: Database) -> None:
    if database.kind == "postgres":
        with pytest.raises(Unsupported, match="63 bytes"):
            database.destination.table("x" * 64).shape()


def test_a_late_writer_is_fenced_off(database: Database) -> None:
    database.load("t", UPSERT, PAIRS, ABC, content="one,two")
    plan = database.plan("t", UPSERT, PAIRS)
    late = database.frame(PAIRS, [{"k": 1, "v": "late"}])
    with (
        database.destination.table("t").prepare(plan, SparkRows(late)) as prepared,
        pytest.raises(Fenced, match="newer writer"),
    ):
        prepared.commit(database.marker(plan, prepared.counts, sequence=1))
    with (
        database.destination.table("t").prepare(plan, SparkRows(late)) as prepared,
        pytest.raises(Fenced, match="was applied"),
    ):
        prepared.commit(database.marker(plan, prepared.counts, content="three,two", sequence=2))
    assert canonical(database.rows("t")) == canonical(ABC)


def test_rows_and_marker_are_one_transaction(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.load("t", UPSERT, PAIRS, ABC)

    def dies(self: MarkerTables, marker: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MarkerTables, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "new"}, {"k": 9, "v": "new"}])
    assert canonical(database.rows("t")) == canonical(ABC)


def test_markers_of_many_files(database: Database) -> None:
    contents = [f"file {i}" for i in range(600)]
    database.load("t", UPSERT, PAIRS, ABC, content=",".join(contents))
    database.load("t", UPSERT, PAIRS, ABC, content="more")
    found = database.destination.table("t").markers([hash_of(content) for content in [*contents, "never"]])
    assert len(found.by_hash) == 600
    assert found.by_hash[hash_of("file 7")].marker.content_hashes == tuple(map(hash_of, contents))
    assert found.by_hash[hash_of("file 7")].version == "1"
    assert found.last_sequence == 2
    shape = database.destination.table("t").shape()
    assert shape is not None
    assert (shape.version, shape.unique_by) == ("2", ("k",))


def test_markers_of_a_dropped_table_do_not_count(database: Database) -> None:
    database.load("t", UPSERT, PAIRS, ABC, content="one")
    database.execute("DROP TABLE t")
    assert database.destination.table("t").markers(None).by_hash == {}
    if database.kind == "postgres":
        database.execute("CREATE TABLE t (k int, v text)")
        assert database.destination.table("t").markers(None).last_sequence == 0
        database.execute("DROP TABLE t")
    database.sequence = 0
    assert database.load("t", UPSERT, PAIRS, ABC, content="one").inserted == 3
    assert set(database.destination.table("t").markers(None).by_hash) == {hash_of("one")}


def test_markers_of_a_restored_dump_count(database: Database) -> None:
    """After a restore every table has another id, the marker tables too."""
    database.load("t", UPSERT, PAIRS, ABC, content="one")
    for table in ("_tallymark_applied", "_tallymark_fence"):
        database.execute(f"UPDATE {table} SET table_id = 'old', home_id = 'old'")
    assert set(database.destination.table("t").markers(None).by_hash) == {hash_of("one")}
    database.load("t", UPSERT, PAIRS, ABC, content="two")
    found = database.destination.table("t").markers(None)
    assert (set(found.by_hash), found.last_sequence) == ({hash_of("one"), hash_of("two")}, 2)


def test_a_large_batch_comes_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "ROWS_PER_TABLE", 3)
    rows = [{"k": i, "v": f"v{i}"} for i in range(20)]
    plan = database.plan("t", UPSERT, PAIRS)
    with database.destination.table("t").prepare(plan, SparkRows(database.frame(PAIRS, rows))) as prepared:
        assert prepared.counts.inserted == 20
        prepared.commit(database.marker(plan, prepared.counts, sequence=1))
    assert canonical(database.rows("t")) == canonical(rows)


def test_rows_that_got_lost_on_the_way_are_noticed(database: Database) -> None:
    plan = database.plan("t", UPSERT, PAIRS)
    lost = pytest.raises(CountsDoNotBalance, match="4 rows were read and 3 arrived")
    with lost, database.destination.table("t").prepare(plan, SparkRows(database.frame(PAIRS, ABC), 4)):
        pass


def test_a_load_in_between_is_noticed(database: Database) -> None:
    database.load("t", UPSERT, PAIRS, ABC)
    stale = database.plan("t", UPSERT, PAIRS)
    database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "fresh"}])
    with pytest.raises(TableMoved), database.prepare(stale, PAIRS, ABC):
        pass
    database.execute("ALTER TABLE t ADD COLUMN w int")
    altered = replace(stale, current=replace(stale.current, version="2"))  # type: ignore[type-var]
    with pytest.raises(TableMoved), database.prepare(altered, PAIRS, ABC):
        pass


def test_two_loads_of_one_table_do_not_mix(database: Database) -> None:
    database.load("t", UPSERT, PAIRS, ABC)
    plan = database.plan("t", UPSERT, PAIRS)
    with database.prepare(plan, PAIRS, [{"k": 1, "v": "first"}]) as prepared:
        if database.destination.capabilities.locks_while_loading:
            with pytest.raises(TableBusy):
                database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "second"}])
            prepared.commit(database.marker(plan, prepared.counts, sequence=9))
        else:
            database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "second"}])
            with pytest.raises(TableMoved):
                prepared.commit(database.marker(plan, prepared.counts, sequence=9))


def test_views_are_refused(database: Database) -> None:
    database.execute("CREATE VIEW seen AS SELECT 1 AS k")
    with pytest.raises(NotATable, match="is a view"):
        database.destination.table("seen").shape()


def test_a_constraint_of_the_table_rolls_everything_back(database: Database) -> None:
    database.execute("CREATE TABLE t (k int, v varchar(10) CHECK (v <> 'bad'))")
    with pytest.raises(RowsRefused, match="refuses rows"):
        database.load("t", APPEND, PAIRS, [{"k": 1, "v": "good"}, {"k": 2, "v": "bad"}])
    assert database.rows("t") == []


def test_duplicates_of_a_legacy_table_are_repaired(database: Database) -> None:
    database.execute("CREATE TABLE t (k int, v varchar(10))")
    database.execute(
        "INSERT INTO t VALUES (1, 'a'), (1, 'b'), (1, 'a'), (2, 'x'), (2, 'x'), (3, 'c'), (NULL, 'n')"
    )
    failing = replace(UPSERT, on_target_duplicates=OnTargetDuplicates.FAIL)
    with pytest.raises(PlanError, match="k=1; k=2"):
        database.load("t", failing, PAIRS, ABC)
    database.sequence += 1
    plan = database.plan("t", UPSERT, PAIRS)
    batch = [{"k": 1, "v": "new"}, {"k": 4, "v": "d"}]
    with database.prepare(plan, PAIRS, batch) as prepared:
        assert prepared.duplicates is not None
        assert (prepared.duplicates.rows, prepared.duplicates.keys) == (3, 2)
        counts = prepared.counts
        prepared.commit(database.marker(plan, counts))
    assert (counts.inserted, counts.updated, counts.deleted, counts.total) == (1, 1, 3, 2)
    expected: list[Row] = [
        {"k": 1, "v": "new"},
        {"k": 2, "v": "x"},
        {"k": 3, "v": "c"},
        {"k": 4, "v": "d"},
        {"v": "n"},
    ]
    assert canonical(database.rows("t")) == canonical(expected)


def test_rows_without_a_key_can_be_deleted(database: Database) -> None:
    database.execute("CREATE TABLE t (k int, v varchar(10))")
    database.execute("INSERT INTO t VALUES (1, 'a'), (NULL, 'n'), (NULL, 'm')")
    assert database.load("t", FULL_MERGE, PAIRS, [{"k": 1, "v": "a"}]).deleted == 2
    assert database.rows("t") == [{"k": 1, "v": "a"}]


def test_slices_of_a_column_that_is_new(database: Database) -> None:
    database.load("t", APPEND, PAIRS, ABC)
    schema = "k int, v string, part string"
    plan = replace(database.plan("t", APPEND, schema), shape=ReplaceSlices(("part", "v")))
    database.sequence += 1
    batch = [{"k": 8, "v": "a"}, {"k": 9, "v": "b", "part": "p"}]
    with database.prepare(plan, schema, batch) as prepared:
        assert prepared.counts.deleted == 1
        prepared.commit(database.marker(plan, prepared.counts))
    assert sorted(row["k"] for row in database.rows("t")) == [2, 3, 8, 9]


def _query(sql: str) -> exp.Query:
    parsed = sqlglot.parse_one(sql)
    assert isinstance(parsed, exp.Query)
    return parsed


def _remembering(database: Database, days: int) -> Plan:
    plan = database.plan("t", UPSERT, PAIRS)
    assert isinstance(plan.shape, Merge)
    labels = _query(
        """SELECT i."k" AS "k", i."v" AS "v", CASE WHEN i."v" = 'gone' OR d."k" IS NOT NULL THEN 'skip'
           ELSE 'insert' END AS "_tm_label", TRUE AS "_tm_from_batch"
           FROM "incoming" AS i LEFT JOIN "tombstones" AS d ON i."k" = d."k" """
    )
    new = _query("""SELECT "k" FROM "incoming" WHERE "v" = 'gone'""")
    tombstones = Tombstones((Column("k", "int"),), new, plan.as_of - timedelta(days=days))
    shape = replace(plan.shape, labels=labels, tombstones=tombstones)
    return replace(plan, shape=shape, hints=Hints())


def test_tombstones_are_kept_with_the_load_and_forgotten_in_time(database: Database) -> None:
    def load(value: str, days: int = 30) -> int:
        database.sequence += 1
        plan = _remembering(database, days)
        with database.prepare(plan, PAIRS, [{"k": 1, "v": value}]) as prepared:
            prepared.commit(database.marker(plan, prepared.counts))
            return prepared.counts.inserted

    assert load("gone") == 0
    assert load("late") == 0
    assert load("later", days=0) == 1


_LOADS_AND_HANGS = """
import sys, time
import pyarrow as pa
from tallymark.destinations.contract import ArrowRows
from tallymark.destinations.{kind}.engine import {engine}
from tallymark.destinations.warehouse.destination import WarehouseDestination
from tallymark.model.receipt import Marker
from tallymark.model.receipt import Counts
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column
from tallymark.strategies.build import build_plan
from datetime import UTC, datetime

rows = pa.table({{"k": pa.array([1, 9], pa.int32()), "v": ["killed", "killed"], "_tm_file": pa.array([0, 0], pa.int32()),
    "_tm_block": [0, 0], "_tm_row": [0, 1]}})
destination = WarehouseDestination({engine}(sys.argv[1]))
settings = MergeSettings(Strategy.UPSERT, unique_key=("k",))
at = datetime(2026, 11, 1, tzinfo=UTC)
columns = [Column("k", "int"), Column("v", "string"), Column("w", "int")]
plan = build_plan("t", settings, columns[:2], destination.table("t").shape(), as_of=at)
def hang():
    print("ready", flush=True)
    time.sleep(60)
with destination.table("t").prepare(plan, ArrowRows([rows], 2)) as prepared:
    type(prepared.load.session).commit = lambda self: hang()
    prepared.commit(Marker("b", "p", "t", 7, 1, ("h",), at, "upsert", prepared.counts))
"""


def test_a_killed_load_leaves_nothing_behind(database: Database) -> None:
    """Killed when everything is written and only COMMIT is missing."""
    database.load("t", UPSERT, PAIRS, ABC)
    before = database.objects()
    engine = {"sqlite": "SqliteEngine", "duckdb": "DuckDbEngine", "postgres": "PostgresEngine"}[database.kind]
    script = _LOADS_AND_HANGS.format(kind=database.kind, engine=engine)
    child = subprocess.Popen(
        [sys.executable, "-c", script, database.where], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + 20
    while database.objects() != before and time.monotonic() < deadline:
        time.sleep(0.2)  # the server notices a lost client when it next looks
    assert database.objects() == before
    assert canonical(database.rows("t")) == canonical(ABC)
    assert database.destination.table("t").markers(None).last_sequence == 1
    assert database.load("t", UPSERT, PAIRS, [{"k": 1, "v": "after"}]).updated == 1


def test_a_place_that_is_no_database(database: Database, tmp_path: Path) -> None:
    database.destination.check()
    if database.kind == "postgres":
        for url in (
            "postgresql://nobody:sec-ret-1@127.0.0.1:1/db",
            database.where.replace("postgres:@", "ghost:sec-ret-1@"),
        ):
            other = replace(database, engine=type(database.engine)(url)).destination  # type: ignore[call-arg]
            with pytest.raises(DestinationError) as caught:
                other.check()
            assert "sec-ret-1" not in str(caught.value)
            assert caught.value.hint
        return
    (tmp_path / "text").write_text("this is no database, whatever one may think of it" * 100)
    for path, reason in (
        (tmp_path / "text", "is not a"),
        (tmp_path, "is a folder"),
        (tmp_path / "absent" / "x.db", "no folder"),
    ):
        other = replace(database, engine=type(database.engine)(str(path))).destination  # type: ignore[call-arg]
        with pytest.raises(DestinationError, match=reason):
            other.table("t").shape()


def test_a_user_who_may_not_write_is_told_before_the_load(database: Database) -> None:
    if database.kind != "postgres":
        pytest.skip("a file has no users; root may write any")
    database.load("t", UPSERT, PAIRS, ABC)
    schema = str(database.execute("SELECT current_schema()")[0][0])
    database.execute(f"CREATE ROLE reader_{schema} LOGIN")
    database.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader_{schema}")
    database.execute(f"GRANT SELECT ON t TO reader_{schema}")
    url = database.where.replace("postgres:@", f"reader_{schema}:@")
    reader = postgres_database(url, database.spark).destination
    with pytest.raises(DestinationError, match="INSERT, UPDATE, DELETE"):
        reader.table("t").shape()
    with pytest.raises(DestinationError, match="may not create"):
        reader.table("not_there").shape()
