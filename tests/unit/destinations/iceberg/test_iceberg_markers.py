"""Markers last through all that others do to a table: what is in it is known, and what was undone is too."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.bench import Bench, hash_of
from conformance.orders import APPEND, ORDERS, UPSERT, order
from oracle import canonical
from tallymark.destinations.iceberg import table
from tallymark.destinations.iceberg.markers import Link, lineage
from tallymark.model.receipt import Counts, Marker, Receipt
from unit.destinations.iceberg.iceberg_bench import TABLE, catalog_name, iceberg_bench, reopened, sql_name

ONE, TWO, THREE = (hash_of(name) for name in ("one", "two", "three"))


def load(bench: Bench, *names: str) -> None:
    for number, name in enumerate(names, bench.sequence + 1):
        bench.load(APPEND, ORDERS, [order(number)], name)
        bench.target.settle()


def held(bench: Bench) -> set[str]:
    return set(reopened(bench).target.markers([ONE, TWO, THREE]).by_hash)


def call(bench: Bench, procedure: str) -> None:
    bench.spark.sql(f"CALL {catalog_name(bench)}.system.{procedure}").collect()


def expire(bench: Bench) -> None:
    later = datetime(2100, 1, 1).strftime("TIMESTAMP '%Y-%m-%d %H:%M:%S'")
    call(bench, f"expire_snapshots(table => '{TABLE}', older_than => {later}, retain_last => 1)")


def receipt(bench: Bench, number: int) -> Receipt:
    commit = bench.commits[number]
    return Receipt("b", "p", TABLE, "s", Counts(), commit.version, number + 1, commit.committed_at)


@pytest.mark.slow
def test_expiry_rollback_and_cherry_pick(spark: SparkSession, tmp_path: Path) -> None:
    bench = iceberg_bench(spark, tmp_path)
    load(bench, "one", "two")
    expire(bench)
    assert held(bench) == {ONE, TWO}
    assert reopened(bench).target.markers(None).last_sequence == 2
    load(bench, "three")
    call(bench, f"rollback_to_snapshot('{TABLE}', {bench.commits[1].version})")
    assert held(bench) == {ONE, TWO}
    after = reopened(bench).target.markers(None)
    assert (after.last_sequence, after.held_sequence) == (3, 2)
    assert bench.target.was_rolled_back(receipt(bench, 2))
    assert not bench.target.was_rolled_back(receipt(bench, 1))
    call(bench, f"cherrypick_snapshot('{TABLE}', {bench.commits[2].version})")
    assert held(bench) == {ONE, TWO, THREE}


@pytest.mark.slow
def test_a_load_that_was_rolled_back_and_expired_does_not_count(spark: SparkSession, tmp_path: Path) -> None:
    bench = iceberg_bench(spark, tmp_path)
    load(bench, "one", "two")
    call(bench, f"rollback_to_snapshot('{TABLE}', {bench.commits[0].version})")
    load(bench, "three")
    expire(bench)
    assert held(bench) == {ONE, THREE}
    assert [row["id"] for row in sorted(bench.rows(), key=lambda row: row["id"])] == [1, 3]


@pytest.mark.slow
def test_compaction_rename_drop_and_another_table(spark: SparkSession, tmp_path: Path) -> None:
    """In a JDBC catalog: a dropped table leaves its files, and so its copies of markers, behind."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    bench = iceberg_bench(spark, tmp_path, catalog="jdbc", uri=uri)
    load(bench, "one", "two")
    call(bench, f"rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))")
    version = bench.target.input_version()
    expire(bench)
    assert held(bench) == {ONE, TWO}
    assert version is not None
    moved = sql_name(bench).replace("`orders`", "`elsewhere`")
    bench.spark.sql(f"ALTER TABLE {sql_name(bench)} RENAME TO silver.elsewhere")
    assert held(bench) == set()
    assert bench.target.was_rolled_back(receipt(bench, 1))
    bench.spark.sql(f"ALTER TABLE {moved} RENAME TO {TABLE}")
    assert held(bench) == {ONE, TWO}
    bench.spark.sql(f"DROP TABLE {sql_name(bench)}")
    assert held(bench) == set()
    bench.spark.sql(f"CREATE TABLE {sql_name(bench)} USING iceberg AS SELECT 1L AS id")
    assert held(bench) == set()
    assert reopened(bench).target.markers(None).last_sequence == 0


@pytest.mark.slow
def test_a_commit_that_was_lost_does_not_count_though_it_was_copied(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As after a power loss: the newest metadata never reached the disk."""
    bench = iceberg_bench(spark, tmp_path)
    load(bench, "one")
    files = tmp_path / "ice" / "silver" / "orders" / "metadata"
    before = {path.name for path in files.glob("v*.metadata.json")}
    load(bench, "two")
    for path in files.glob("v*.metadata.json"):
        if path.name not in before:
            path.unlink()
            (files / f".{path.name}.crc").unlink(missing_ok=True)
    (files / "version-hint.text").unlink()
    (files / ".version-hint.text.crc").unlink(missing_ok=True)
    assert held(bench) == {ONE}
    after = reopened(bench).target.markers(None)
    assert (after.held_sequence, after.last_sequence) == (1, 2)
    bench.sequence = 2
    bench.load(APPEND, ORDERS, [order(2)], "two")
    assert canonical(bench.rows()) == canonical([order(1), order(2)])


def test_the_line_goes_on_among_the_copies() -> None:
    at = datetime(2026, 11, 1, tzinfo=UTC)

    def link(number: int, parent: int | None) -> Link:
        return Link(number, parent, None, number, at, None)

    def line(head: int, log: list[Link], copies: list[Link]) -> list[int]:
        found = lineage(head, {each.id: each for each in log}, {each.id: each for each in copies})
        return [each.id for each in found]

    first, undone, second = link(1, None), link(2, 1), link(3, 1)
    assert line(3, [second, first], [first, undone]) == [3, 1]
    assert line(3, [second], [first, undone]) == [3, 1], "the undone one leads nowhere"
    assert line(9, [link(9, 8)], [first, undone]) == [9, 2, 1], "8 expired before it was copied"
    assert line(9, [link(9, 8)], []) == [9]
    assert line(1, [first], [undone, second]) == [1], "copies that are newer than main"


def test_a_marker_survives_a_copy() -> None:
    marker = Marker(
        "b", "p", "k", 4, 2, (ONE,), datetime(2026, 11, 1, tzinfo=UTC), "upsert", Counts(inserted=1)
    )
    row = Link(7, None, None, 1, marker.as_of, marker.to_json()).as_row("table")
    assert Link.from_row(row).marker == marker


@pytest.mark.slow
def test_dead_branches_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    bench = iceberg_bench(spark, tmp_path)
    load(bench, "one")
    for branch in ("tallymark_1_5_0123abcd", "tallymark_7_5_0123abcd", "theirs"):
        bench.spark.sql(f"ALTER TABLE {sql_name(bench)} CREATE BRANCH {branch}")
    bench.load(UPSERT, ORDERS, [order(1, "b")], "two")
    left = {row[0] for row in bench.spark.sql(f"SELECT name FROM {sql_name(bench)}.refs").collect()}
    assert left == {"main", "theirs", "tallymark_7_5_0123abcd"}, "that of a later fence may be alive"


@pytest.mark.slow
def test_where_only_spark_sees_the_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark Connect, or on a store: the metadata is read by Spark, and copies are a table."""
    monkeypatch.setattr(table, "shares_files", lambda session: False)
    bench = iceberg_bench(spark, tmp_path)
    load(bench, "one", "two")
    assert (tmp_path / "ice" / "silver" / "orders" / "_tallymark" / "snapshots" / "_delta_log").is_dir()
    expire(bench)
    assert held(bench) == {ONE, TWO}
    call(bench, f"rollback_to_snapshot('{TABLE}', {bench.commits[1].version})")
    bench.load(UPSERT, ORDERS, [order(1, "b"), order(2)], "three")
    assert held(bench) == {ONE, TWO, THREE}
