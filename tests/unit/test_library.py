"""`tm.merge` and `tm.plan` on the caller's own session, without a project."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from delta_rs import rows_of
from tallymark.errors import ConfigError, PlanError, SourceError, TooManyBadRows, Unsupported


def rows(path: Path) -> list[tuple[object, ...]]:
    return sorted((row["id"], row["name"]) for row in rows_of(path))


def rows_in(database: dict[str, str]) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database["path"])) as connection:
        return connection.execute("SELECT id, name FROM people ORDER BY id").fetchall()


def test_merging_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "lake/people"
    first = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(id, name)")
    second = spark.sql("SELECT * FROM VALUES (2, 'b'), (3, 'c'), (1, 'z') AS t(id, name)")
    assert tm.merge(first, target, unique_key="id").inserted == 2
    planned = tm.plan(second, target, unique_key="id")
    receipt = tm.merge(second, target, unique_key="id")
    assert (receipt.inserted, receipt.updated, receipt.unchanged, receipt.total) == (1, 1, 1, 3)
    assert planned.counts == receipt.counts
    assert rows(target) == [(1, "z"), (2, "b"), (3, "c")]


def test_a_frame_with_an_id_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    database = {"type": "sqlite", "path": str(tmp_path / "people.db")}
    frame = spark.sql("SELECT 1 AS id, 'a' AS name")
    load = partial(tm.merge, frame, "people", strategy="append_only", destination=database)
    assert load(content_id="day-1").inserted == 1
    again = load(content_id="day-1")
    assert (again.already_applied, again.inserted, rows_in(database)) == (True, 0, [(1, "a")])
    assert load().inserted == 1


def test_files_are_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    database = {"type": "sqlite", "path": str(tmp_path / "people.db")}
    (tmp_path / "1.csv").write_text("id,name\n1,a\n")
    glob = str(tmp_path / "*.csv")
    load = partial(tm.merge, glob, "people", strategy="append_only", spark=spark, destination=database)
    assert load().inserted == 1
    (tmp_path / "2.csv").write_text("id,name\n2,b\n")
    assert load().inserted == 1
    assert load().already_applied
    assert rows_in(database) == [("1", "a"), ("2", "b")]


def test_the_callers_session_is_left_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes of the test run have global views of their own, so that only its own are looked at."""
    frame, views = spark.range(3), list[str]()
    create = type(frame).createGlobalTempView

    def noted(self: Any, name: str) -> None:
        views.append(name)
        create(self, name)

    monkeypatch.setattr(type(frame), "createGlobalTempView", noted)
    tm.merge(frame, tmp_path / "t", strategy="append_only")
    assert not [key for key in spark.conf.getAll if key.endswith(("txnVersion", "userMetadata"))]
    assert len(views) == 1
    assert not spark.catalog.tableExists(f"global_temp.{views[0]}")


def test_wrong_arguments_are_told(spark: SparkSession, tmp_path: Path) -> None:
    frame, target = spark.range(1), tmp_path / "t"
    with pytest.raises(ConfigError, match="unique_key"):
        tm.merge(frame, target, uniqe_key="id")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="upsert"):
        tm.merge(frame, target, strategy="upsrt", unique_key="id")
    with pytest.raises(PlanError, match="unique_key"):
        tm.merge(frame, target)
    with pytest.raises(PlanError, match="no column ident"):
        tm.merge(frame, target, strategy="incremental", unique_key="id", watermark_column="ident")
    with pytest.raises(SourceError):
        tm.merge(str(tmp_path / "none/*.csv"), target, unique_key="id", spark=spark)
    with pytest.raises(TooManyBadRows, match="null key"):
        tm.merge(spark.sql("SELECT CAST(NULL AS INT) AS id"), target, unique_key="id")
    assert not target.exists()


def test_names_that_delta_holds_only_with_column_mapping(spark: SparkSession, tmp_path: Path) -> None:
    first = spark.sql("SELECT 1 AS id, 'a' AS `full name`")
    with pytest.raises(Unsupported, match="'full name': a Delta table cannot hold a name with ' '"):
        tm.merge(first, tmp_path / "people", unique_key="id")
    lake = {
        "type": "delta",
        "path": str(tmp_path / "lake"),
        "properties": {"delta.columnMapping.mode": "name"},
    }
    assert tm.merge(first, "people", unique_key="id", destination=lake).inserted == 1
    second = spark.sql("SELECT 1 AS id, 'b' AS `full name`")
    assert tm.merge(second, "people", unique_key="id", destination=lake).updated == 1
    assert [
        tuple(row) for row in spark.sql(f"SELECT `full name` FROM delta.`{tmp_path}/lake/people`").collect()
    ] == [("b",)]


def test_a_state_that_returns_by_a_call(spark: SparkSession, tmp_path: Path) -> None:
    database = {"type": "sqlite", "path": str(tmp_path / "people.db")}
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"id,name\n1,{name}\n")

    def load(name: str, **options: Any) -> tm.Receipt:
        return tm.merge(str(tmp_path / f"{name}.csv"), "people", destination=database, spark=spark, **options)

    for name in "aba":
        assert not load(name, strategy="full_refresh").already_applied
        assert load(name, strategy="full_refresh").already_applied
        assert rows_in(database) == [("1", name)]
    planned = tm.plan(
        str(tmp_path / "b.csv"), "people", destination=database, spark=spark, strategy="full_refresh"
    )
    assert (planned.counts.inserted, len(planned.warnings)) == (1, 1)
    assert "before its latest load" in load("b", strategy="full_refresh").warnings[0]
    left = load("a", unique_key="id")
    assert (left.already_applied, rows_in(database)) == (True, [("1", "b")])
    assert "it is not loaded again" in left.warnings[0]
    with pytest.raises(SourceError, match="repeated_content is fail"):
        load("a", unique_key="id", repeated_content="fail")
    assert load("a", unique_key="id", repeated_content="apply").updated == 1
