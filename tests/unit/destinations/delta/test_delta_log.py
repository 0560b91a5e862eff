"""What a Delta log says without Spark, and which commits make up a table after RESTORE."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallymark.destinations.delta.log import restored_since
from tallymark.destinations.lakehouse.history import HeldVersions


def log_of(folder: Path, *operations: str) -> Path:
    (folder / "_delta_log").mkdir(parents=True)
    for version, operation in enumerate(operations):
        info = {"commitInfo": {"operation": operation}}
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
    assert restored_since(str(table), version) is restored
    assert restored_since(table.as_uri(), version) is restored


def test_a_table_that_is_gone_has_gone_back_but_a_disk_that_is_away_has_not(tmp_path: Path) -> None:
    assert restored_since(str(tmp_path / "gone"), 3)
    assert not restored_since(str(tmp_path / "not mounted/gone"), 3)
    assert not restored_since("s3a://bucket/table", 3)


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    table = log_of(tmp_path / "t", "WRITE", "RESTORE")
    (table / f"_delta_log/{1:020}.json").write_bytes(b"commitInfo \xff not json")
    assert not restored_since(str(table), 0)


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
