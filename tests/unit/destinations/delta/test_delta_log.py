"""What a Delta log says without Spark, and which commits make up a table after RESTORE."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tallymark.destinations.delta.log import went_back
from tallymark.destinations.lakehouse.history import HeldVersions
from tallymark.model.receipt import Counts, Marker


def marker_of(batch_id: str) -> str:
    return Marker(batch_id, "p", "k", 1, 1, (), datetime.now(UTC), "upsert", Counts()).to_json()


def log_of(folder: Path, *operations: str) -> Path:
    (folder / "_delta_log").mkdir(parents=True)
    for version, operation in enumerate(operations):
        info = {"commitInfo": {"operation": operation, "userMetadata": marker_of(f"batch {version}")}}
        (folder / f"_delta_log/{version:020}.json").write_text(json.dumps(info) + '\n{"add": {}}\n')
    return folder


@pytest.mark.parametrize(
    ("operations", "version", "restored"),
    [
        (["WRITE", "WRITE"], 1, False),
        (["WRITE", "WRITE", "OPTIMIZE"], 1, False),
        (["WRITE", "WRITE", "OPTIMIZE", "RESTORE", "WRITE"], 1, True),
        (["WRITE", "RESTORE", "WRITE"], 1, False),
    ],
)
def test_only_a_restore_after_the_version_counts(
    tmp_path: Path, operations: list[str], version: int, restored: bool
) -> None:
    table = log_of(tmp_path / "a table", *operations)
    assert went_back(str(table), version, f"batch {version}") is restored
    assert went_back(table.as_uri(), version, f"batch {version}") is restored


def test_a_log_without_the_commit_has_gone_back(tmp_path: Path) -> None:
    table = log_of(tmp_path / "t", "WRITE", "WRITE", "WRITE")
    newest = table / f"_delta_log/{2:020}.json"
    assert not went_back(str(table), 2, "batch 2")
    assert went_back(str(table), 2, "batch 7"), "another commit has its number"
    assert went_back(str(table), 3, "batch 3"), "the log ends before it"
    newest.write_bytes(b"")  # the name was on the disk, the content was not
    assert went_back(str(table), 2, "batch 2")
    newest.unlink()
    assert went_back(str(table), 2, "batch 2")


def test_a_log_that_was_cleaned_up_has_not_gone_back(tmp_path: Path) -> None:
    table = log_of(tmp_path / "t", "WRITE", "WRITE", "WRITE")
    (table / f"_delta_log/{2:020}.checkpoint.parquet").touch()
    for version in range(2):
        (table / f"_delta_log/{version:020}.json").unlink()
    assert not went_back(str(table), 1, "batch 1")
    (table / f"_delta_log/{2:020}.json").unlink()
    assert not went_back(str(table), 2, "batch 2"), "its checkpoint is left"


def test_a_table_that_is_gone_has_gone_back_but_a_disk_that_is_away_has_not(tmp_path: Path) -> None:
    assert went_back(str(tmp_path / "gone"), 3, "b")
    assert not went_back(str(tmp_path / "not mounted/gone"), 3, "b")
    assert not went_back("s3a://bucket/table", 3, "b")


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    table = log_of(tmp_path / "t", "WRITE", "RESTORE")
    (table / f"_delta_log/{1:020}.json").write_bytes(b"commitInfo \xff not json")
    assert not went_back(str(table), 0, "batch 0")


@pytest.mark.parametrize(
    ("restores", "held"),
    [
        ([], {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
        ([(5, 2)], {0, 1, 2, 5, 6, 7, 8, 9}),
        ([(5, 2), (8, 4)], {0, 1, 2, 3, 4, 8, 9}),  # the second brings back what the first took
        ([(5, 2), (8, 6)], {0, 1, 2, 5, 6, 8, 9}),
        ([(4, 1), (8, 0)], {0, 8, 9}),
    ],
)
def test_the_commits_that_make_up_a_restored_table(restores: list[tuple[int, int]], held: set[int]) -> None:
    assert {version for version in range(10) if version in HeldVersions.after_restores(restores)} == held
    assert HeldVersions.after_restores(restores) == HeldVersions.after_restores(reversed(restores))
