"""What only Delta can show: how one commit repairs duplicates, finds rows without a key, keeps its feed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp

from tallymark.destinations.contract import Commit, PreparedLoad, SparkRows
from tallymark.destinations.delta.table import DeltaDestination
from tallymark.errors import Fenced, PlanError, TiedRows, Unsupported
from tallymark.model.plan import Append, Duplicates, Merge, Plan, Refusal, ReplaceTable, Shape, Tombstones
from tallymark.model.receipt import Counts, Marker
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column
from tallymark.spark.frames import local_frame

TABLE = "silver.orders"
COLUMNS = (Column("id", "bigint"), Column("name", "string"))
AS_OF = datetime(2026, 11, 1, 10, 15, 0, 123456, tzinfo=UTC)
Pair = tuple[int | None, str | None]


def parsed(text: str) -> exp.Query:
    query = sqlglot.parse_one(text)
    assert isinstance(query, exp.Query)
    return query


UPSERT = parsed(
    """
    SELECT i.id AS id, i.name AS name,
           CASE WHEN c.id IS NULL THEN 'insert' WHEN i.name = 'gone' THEN 'delete'
                WHEN i.name = 'end' THEN 'close' WHEN i.name = c.name THEN 'unchanged' ELSE 'update' END AS _tm_label,
           TRUE AS _tm_from_batch
    FROM incoming AS i LEFT JOIN current AS c ON i.id = c.id
    """
)
DELETE_ALL = parsed(
    """
    SELECT id, name, 'delete' AS _tm_label, FALSE AS _tm_from_batch FROM current
    UNION ALL SELECT id, name, 'insert', TRUE FROM incoming
    """
)
KEYS = parsed(
    "SELECT id, COUNT(*) AS _tm_copies FROM current WHERE id IS NOT NULL GROUP BY id HAVING COUNT(*) > 1"
)
SURVIVORS = parsed(
    """
    SELECT id, name FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY name DESC) AS _tm_copy FROM current
    ) AS ranked WHERE _tm_copy = 1 OR id IS NULL
    """
)


def merge(
    labels: exp.Query = UPSERT,
    *,
    whole_table: bool = False,
    repair: bool = True,
    refusals: tuple[Refusal, ...] = (),
    tombstones: Tombstones | None = None,
) -> Merge:
    return Merge(("id",), labels, Duplicates(KEYS, SURVIVORS, whole_table, repair), refusals, tombstones)


class Lake:
    def __init__(self, spark: SparkSession, folder: Path, **properties: str):
        self.spark = spark
        self.path = f"{folder}/silver/orders"
        self.properties = properties
        self.destination = DeltaDestination(
            lambda: spark, root=str(folder), properties={f"delta.{k}": v for k, v in properties.items()}
        )
        self.target = self.destination.table(TABLE)
        self.sequence = 0

    def plan(self, shape: Shape, as_of: datetime = AS_OF) -> Plan:
        return Plan(
            table=TABLE,
            settings=MergeSettings(Strategy.UPSERT, unique_key=("id",)),
            shape=shape,
            reason="",
            columns=COLUMNS,
            given=COLUMNS,
            current=self.target.shape(),
            as_of=as_of,
            table_properties=self.destination.table_properties,
        )

    def load(self, shape: Shape, rows: list[Pair], as_of: datetime = AS_OF) -> tuple[Counts, Commit]:
        frame = local_frame(self.spark, [*rows], "ID int, name string")
        plan = self.plan(shape, as_of)
        with self.target.prepare(plan, SparkRows(frame)) as prepared:
            return prepared.counts, self.commit(plan, prepared)

    def commit(self, plan: Plan, prepared: PreparedLoad) -> Commit:
        self.sequence += 1
        commit = prepared.commit(self.marker(plan, prepared.counts))
        assert commit.disagreement == ""
        return commit

    def marker(self, plan: Plan, counts: Counts) -> Marker:
        number = self.sequence
        return Marker(
            batch_id=f"b{number}",
            pipeline="p",
            table_key="k",
            sequence=number,
            fence=number,
            content_hashes=(f"h{number}",),
            as_of=plan.as_of,
            strategy="upsert",
            counts=counts,
            unique_by=plan.unique_by,
        )

    def rows(self) -> list[Pair]:
        found = self.spark.read.format("delta").load(self.path).collect()
        return sorted(((r["id"], r["name"]) for r in found), key=repr)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


LEGACY: list[Pair] = [(1, "a"), (1, "b"), (1, "b"), (2, "c"), (2, "d"), (3, "e"), (4, "f"), (4, "g")]


@pytest.mark.slow
@pytest.mark.parametrize("feed", ["false", "true"])
def test_duplicates_are_repaired_in_the_commit_of_the_merge(
    spark: SparkSession, tmp_path: Path, feed: str
) -> None:
    lake = Lake(spark, tmp_path, enableChangeDataFeed=feed)
    lake.load(Append(), LEGACY)
    counts, commit = lake.load(merge(whole_table=True), [(1, "new"), (2, "gone"), (3, "up"), (5, "in")])
    assert counts == Counts(inserted=1, updated=2, deleted=1 + 4, total=4)
    assert lake.rows() == [(1, "new"), (3, "up"), (4, "g"), (5, "in")]
    assert len(LEGACY) + counts.inserted - counts.deleted == len(lake.rows())
    shape = lake.target.shape()
    assert shape is not None
    assert (shape.version, shape.unique_by) == (commit.version, ("id",))
    if feed == "true":
        assert shape.properties["delta.enableChangeDataFeed"] == "true"
        changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        kinds = [(r["id"], r["_change_type"]) for r in changes.load(lake.path).collect()]
        assert kinds.count((1, "delete")) == 3
        assert kinds.count((1, "insert")) == 1
        assert kinds.count((3, "update_postimage")) == 1


@pytest.mark.slow
def test_duplicates_show_by_more_labels_than_rows(lake: Lake) -> None:
    lake.load(Append(), LEGACY)
    assert lake.load(merge(), [(3, "x")])[0] == Counts(updated=1, total=1)
    plan = lake.plan(merge())
    with lake.target.prepare(
        plan, SparkRows(local_frame(lake.spark, [(1, "b")], "id bigint, name string"))
    ) as seen:
        assert seen.counts == Counts(unchanged=1, deleted=4, total=1)
        assert seen.duplicates is not None
        assert (seen.duplicates.keys, seen.duplicates.rows) == (3, 4)
        assert seen.duplicates.sample == ({"id": 1}, {"id": 2}, {"id": 4})
        assert lake.commit(plan, seen).method == "merge"
    assert lake.rows() == [(1, "b"), (2, "d"), (3, "x"), (4, "g")]


def test_duplicates_are_refused_where_that_is_asked_for(lake: Lake) -> None:
    lake.load(Append(), LEGACY)
    with pytest.raises(PlanError, match=r"several rows for one unique_key: 3 keys in 7 rows, such as id=1"):
        lake.load(merge(whole_table=True, repair=False), [])


def test_rows_without_a_key_are_found_to_be_deleted(lake: Lake) -> None:
    lake.load(Append(), [(None, "a"), (None, "b"), (1, "c")])
    counts, commit = lake.load(merge(DELETE_ALL), [(None, "new")])
    assert counts == Counts(inserted=1, deleted=3, total=1)
    assert (commit.method, lake.rows()) == ("merge", [(None, "new")])


def test_closing_and_updating_replace_rows(lake: Lake) -> None:
    lake.load(merge(), [(1, "a"), (2, "b")])
    counts, commit = lake.load(merge(), [(1, "end"), (2, "x"), (3, "c")])
    assert counts == Counts(inserted=1, updated=1, closed=1, total=3)
    assert (commit.method, lake.rows()) == ("replace rows", [(1, "end"), (2, "x"), (3, "c")])


def test_what_a_refusal_finds_is_named(lake: Lake) -> None:
    nothing = Refusal(parsed("SELECT id FROM incoming WHERE FALSE"), "never", "")
    refusal = Refusal(parsed("SELECT id FROM incoming WHERE name = 'bad'"), "no bad names", "rename them")
    with pytest.raises(TiedRows, match=r"silver\.orders: no bad names: id=7") as raised:
        lake.load(merge(refusals=(nothing, refusal)), [(7, "bad"), (8, "good")])
    assert (raised.value.hint, raised.value.facts) == ("rename them", {"keys": [{"id": 7}]})


def test_the_batch_time_is_exact_in_any_time_zone(lake: Lake) -> None:
    text = "SELECT id, CAST(:as_of AS STRING) AS name, 'insert' AS _tm_label, TRUE AS _tm_from_batch FROM incoming"
    lake.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        lake.load(merge(parsed(text)), [(1, "x")])
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert lake.rows() == [(1, "2026-11-01 19:15:00.123456")]


@pytest.mark.parametrize("shape", [ReplaceTable(), merge()], ids=["replace", "merge"])
def test_a_table_that_only_takes_new_rows_refuses_others_when_planned(
    spark: SparkSession, tmp_path: Path, shape: Shape
) -> None:
    lake = Lake(spark, tmp_path, appendOnly="true")
    lake.load(Append(), [(1, "a")])
    with pytest.raises(Unsupported, match=r"delta\.appendOnly"):
        lake.load(shape, [(1, "b")])
    assert lake.load(merge(), [(2, "b")])[0].inserted == 1


def test_a_table_whose_fence_would_expire_is_refused(lake: Lake) -> None:
    lake.load(Append(), [(1, "a")])
    name = "delta.setTransactionRetentionDuration"
    lake.spark.sql(f"ALTER TABLE delta.`{lake.path}` SET TBLPROPERTIES ('{name}' = 'interval 1 days')")
    with pytest.raises(Unsupported, match="expire"):
        lake.load(Append(), [(2, "b")])
    assert lake.rows() == [(1, "a")]


def test_uniqueness_is_known_until_somebody_else_writes(lake: Lake) -> None:
    def known() -> tuple[str, ...]:
        shape = lake.target.shape()
        assert shape is not None
        return shape.unique_by

    lake.load(Append(), [(1, "a")])
    assert known() == ()
    lake.load(merge(), [(2, "a")])
    assert known() == ("id",)
    for statement in ("OPTIMIZE {t}", "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')"):
        lake.spark.sql(statement.format(t=f"delta.`{lake.path}`"))
    assert known() == ("id",)
    assert Lake(lake.spark, Path(lake.path).parent.parent).target.shape() == (lake.target.shape())
    lake.spark.sql(f"INSERT INTO delta.`{lake.path}` VALUES (1, 'foreign')")
    assert known() == ()


def test_a_table_made_anew_is_noticed(lake: Lake) -> None:
    lake.load(merge(), [(1, "a")])
    assert lake.target.markers(["h1"]).by_hash
    lake.target.settle()
    other = local_frame(lake.spark, [(9, "z")], "id bigint, name string")
    shutil.rmtree(lake.path)
    for _ in range(2):
        other.write.format("delta").mode("append").save(lake.path)
    found = lake.target.markers(["h1"])
    assert (found.by_hash, found.last_sequence) == ({}, 0)


TOMBSTONES = Tombstones(
    columns=COLUMNS,
    new=parsed("SELECT id, name FROM incoming WHERE name = 'gone'"),
    forget_before=AS_OF - timedelta(days=30),
)
REMEMBERING = parsed(
    """
    SELECT i.id AS id, i.name AS name,
           CASE WHEN t.id IS NOT NULL THEN 'skip' WHEN i.name = 'gone' THEN 'skip' ELSE 'insert' END AS _tm_label,
           TRUE AS _tm_from_batch
    FROM incoming AS i LEFT JOIN tombstones AS t ON i.id = t.id
    """
)


def remembering(as_of: datetime = AS_OF) -> Merge:
    kept = replace(TOMBSTONES, forget_before=as_of - timedelta(days=30))
    return merge(REMEMBERING, tombstones=kept)


def shares_files(monkeypatch: pytest.MonkeyPatch, does: bool) -> None:
    monkeypatch.setattr("tallymark.destinations.delta.table.shares_files", lambda spark: does)


@pytest.fixture
def feed(request: pytest.FixtureRequest, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table in a folder of this machine, or, where a test asks for it, one in a place that only Spark sees."""
    shares_files(monkeypatch, getattr(request, "param", "files") == "files")
    return lake


def remembered(lake: Lake) -> int:
    """In either place."""
    beside = Path(lake.path) / "_tallymark"
    files = [pq.read_metadata(file).num_rows for file in beside.glob("deletes/*.parquet")]
    if (beside / "tombstones").is_dir():
        assert files == []
        return lake.spark.read.format("delta").load(f"{beside}/tombstones").count()
    return sum(files)


def test_deletes_are_remembered_from_the_first_load_on(feed: Lake) -> None:
    feed.load(remembering(), [(1, "gone"), (2, "a")])
    assert remembered(feed) == 1
    assert feed.load(remembering(), [(1, "late"), (3, "b")])[0] == Counts(inserted=1, skipped=1, total=2)
    later = AS_OF + timedelta(days=40)
    assert feed.load(remembering(later), [(1, "back")], later)[0].inserted == 1
    feed.target.settle()
    assert remembered(feed) == 0


def test_tombstones_of_a_load_that_did_not_commit_have_no_say(feed: Lake) -> None:
    feed.load(remembering(), [(2, "a")])
    plan = feed.plan(remembering())
    rows = local_frame(feed.spark, [(1, "gone")], "id bigint, name string")
    with feed.target.prepare(plan, SparkRows(rows)) as prepared, pytest.raises(Fenced):
        late = replace(feed.marker(plan, prepared.counts), batch_id="late", content_hashes=("late",))
        prepared.commit(late)
    assert remembered(feed) == 1
    assert feed.load(remembering(), [(1, "first")])[0].inserted == 1


@pytest.mark.slow
@pytest.mark.parametrize("feed", ["files", "delta table"], indirect=True)
def test_tombstones_of_a_load_that_was_undone_have_no_say(feed: Lake) -> None:
    feed.load(remembering(), [(2, "a")])
    feed.load(remembering(), [(1, "gone")])
    assert feed.load(remembering(), [(1, "late")])[0].skipped == 1
    feed.spark.sql(f"RESTORE TABLE delta.`{feed.path}` TO VERSION AS OF 0")
    assert feed.load(remembering(), [(1, "first")])[0].inserted == 1


def test_a_table_that_is_made_again_remembers_nothing(feed: Lake) -> None:
    """Though what another one remembered may still lie there."""
    feed.load(remembering(), [(1, "gone"), (2, "a")])
    shutil.rmtree(Path(feed.path) / "_delta_log")
    for file in Path(feed.path).glob("*.parquet"):
        file.unlink()
    feed.load(remembering(), [(2, "a")])
    assert remembered(feed) == 1
    assert feed.load(remembering(), [(1, "first")])[0].inserted == 1


@pytest.mark.slow
def test_what_the_delta_table_remembers_counts_beside_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what files remember counts where only Spark reads."""
    shares_files(monkeypatch, False)
    lake.load(remembering(), [(1, "gone"), (9, "a")])
    shares_files(monkeypatch, True)
    lake.destination = DeltaDestination(lambda: lake.spark, root=str(Path(lake.path).parents[1]))
    assert lake.load(remembering(), [(1, "late"), (2, "gone")])[0].skipped == 2
    assert lake.load(remembering(), [(1, "late"), (2, "late")])[0].skipped == 2
    shares_files(monkeypatch, False)
    lake.destination = DeltaDestination(lambda: lake.spark, root=str(Path(lake.path).parents[1]))
    counts = lake.load(remembering(), [(1, "late"), (2, "late"), (3, "new")])[0]
    assert (counts.skipped, counts.inserted) == (2, 1)
