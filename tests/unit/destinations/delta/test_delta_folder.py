"""What the files of a Delta log tell without Spark is what Spark tells, and all else is left to Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.delta.log import FileCommits, SparkCommits, TableSettings, settings_at
from tallymark.destinations.lakehouse.history import HistoryEntry

ASKED_SPARK = [HistoryEntry(7, datetime(2026, 11, 1, tzinfo=UTC), "WRITE", {}, None, None, 6)]
WRITE = {"commitInfo": {"operation": "WRITE", "txnId": "w"}}


class AskedSpark:
    def maybe_exists(self) -> bool:
        return True

    def newest(self, limit: int) -> list[HistoryEntry]:
        return ASKED_SPARK

    def maybe_newer_than(self, version: int) -> bool:
        return True


def log_of(table: Path, *commits: Iterable[dict[str, Any]], first: int = 0) -> FileCommits:
    for version, actions in enumerate(commits, first):
        written(table, f"{version:020}.json", *actions)
    return FileCommits(table, AskedSpark())


def written(table: Path, name: str, *lines: dict[str, Any]) -> None:
    file = table / "_delta_log" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def metadata(table_id: str, **properties: str) -> dict[str, Any]:
    return {"metaData": {"id": table_id, "configuration": properties}}


def test_the_newest_commits_newest_first(tmp_path: Path) -> None:
    restore = {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": 0}}}
    commits = log_of(tmp_path, [metadata("a"), WRITE], [WRITE], [restore])
    assert [(e.version, e.operation, e.restored_to) for e in commits.newest(2)] == [
        (2, "RESTORE", 0),
        (1, "WRITE", None),
    ]
    assert [e.version for e in commits.newest(10)] == [2, 1, 0]


def test_a_folder_without_a_log_has_no_table(tmp_path: Path) -> None:
    commits = FileCommits(tmp_path, AskedSpark())
    assert not commits.maybe_exists()
    assert commits.newest(3) == ASKED_SPARK  # which knows how to say it


TO_A_TIME = {"commitInfo": {"operation": "RESTORE", "operationParameters": {"timestamp": "2026-11-01"}}}


@pytest.mark.parametrize(
    "commits", [[[{"add": {}}]], [[WRITE], [TO_A_TIME]], [[{"commitInfo": ["odd"]}]], [[WRITE], []]]
)
def test_commits_that_do_not_say_enough_are_left_to_spark(
    tmp_path: Path, commits: list[list[dict[str, Any]]]
) -> None:
    assert log_of(tmp_path, *commits).newest(5) == ASKED_SPARK


def test_a_log_that_is_not_whole_is_left_to_spark(tmp_path: Path) -> None:
    cleaned = log_of(tmp_path, [WRITE], [WRITE], first=11)
    assert cleaned.newest(5) == ASKED_SPARK
    written(tmp_path, f"{10:020}.checkpoint.parquet")
    assert [e.version for e in cleaned.newest(5)] == [12, 11]
    written(tmp_path, f"{14:020}.json", WRITE)
    assert cleaned.newest(5) == ASKED_SPARK


def test_commits_that_are_not_published_yet_are_left_to_spark(tmp_path: Path) -> None:
    commits = log_of(tmp_path, [WRITE])
    (tmp_path / "_delta_log/_staged_commits").mkdir()
    assert [e.version for e in commits.newest(5)] == [0]
    written(tmp_path, f"_staged_commits/{1:020}.uuid.json", WRITE)
    assert commits.newest(5) == ASKED_SPARK


def test_the_last_settings_hold(tmp_path: Path) -> None:
    log_of(tmp_path, [WRITE, metadata("a")], [WRITE], [WRITE, metadata("a", key="value")], [WRITE])
    assert settings_at(tmp_path, 1) == TableSettings("a", {})
    assert settings_at(tmp_path, 3) == TableSettings("a", {"key": "value"})


def test_a_summary_of_delta_tells_the_settings_of_its_own_commit_only(tmp_path: Path) -> None:
    log_of(tmp_path, [WRITE], first=500)
    assert settings_at(tmp_path, 500) is None
    written(tmp_path, f"{500:020}.crc", {"txnId": "w", "metadata": {"id": "a"}})
    assert settings_at(tmp_path, 500) == TableSettings("a", {})
    written(tmp_path, f"{500:020}.crc", {"txnId": "of another", "metadata": {"id": "b"}})
    assert settings_at(tmp_path, 500) is None


@pytest.mark.slow
def test_files_tell_what_spark_tells(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "a table"
    sql, rows = f"delta.`{table}`", spark.range(3).coalesce(1)
    rows.write.format("delta").option("delta.appendOnly", "false").save(str(table))
    rows.write.format("delta").mode("append").option("userMetadata", "not ours").save(str(table))
    spark.sql(f"ALTER TABLE {sql} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'x' = 'y')")
    spark.sql(f"RESTORE TABLE {sql} TO VERSION AS OF 1").collect()
    other = spark.sql("SELECT 'x' AS k").coalesce(1)
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(table))
    check_same(spark, table, 4)


def check_same(spark: SparkSession, table: Path, version: int) -> None:
    told = SparkCommits(spark, f"delta.`{table}`").newest(20)
    read = FileCommits(table, AskedSpark()).newest(20)
    assert [replace(e, committed_at=NOW) for e in read] == [replace(e, committed_at=NOW) for e in told]
    apart = [abs((a.committed_at - b.committed_at).total_seconds()) for a, b in zip(read, told, strict=True)]
    assert max(apart) < 0.1
    assert read[0].version == version
    row = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]
    assert settings_at(table, version) == TableSettings(row["id"], dict(row["properties"]))


NOW = datetime(2026, 11, 1, tzinfo=UTC)
