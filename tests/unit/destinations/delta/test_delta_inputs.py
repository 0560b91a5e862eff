"""Versions of Delta tables in folders of this machine, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.delta.table import DeltaDestination
from tallymark.errors import DestinationError


class SparkWasAsked(Exception):
    pass


def no_spark() -> SparkSession:
    raise SparkWasAsked


def lake(root: Path) -> DeltaDestination:
    root.mkdir(exist_ok=True)
    return DeltaDestination(no_spark, root=str(root))


def commit(root: Path, version: int, what: str, *actions: str) -> Path:
    log = root / "silver/orders/_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    file = log / f"{version:020}.json"
    info = {"commitInfo": {"operation": "WRITE", "txnId": what}}
    file.write_text(
        "".join(json.dumps(each) + "\n" for each in (info, *({name: {}} for name in actions or ("add",))))
    )
    return file


def test_every_commit_is_another_version(tmp_path: Path) -> None:
    destination = lake(tmp_path / "a lake")
    assert destination.table("silver.orders").input_version() is None
    commit(tmp_path / "a lake", 9, "one")
    first = destination.table("silver.orders").input_version()
    assert (first or "").startswith("9-")
    commit(tmp_path / "a lake", 10, "two")
    second = destination.table("silver.orders").input_version()
    assert (second or "").startswith("10-")
    assert destination.table("silver.orders").input_version() == second
    in_folder = DeltaDestination(no_spark)
    assert in_folder.table(str(tmp_path / "a lake/silver/orders")).input_version() == second
    assert in_folder.table((tmp_path / "a lake/silver/orders").as_uri()).input_version() == second


def test_a_table_made_anew_has_another_version(tmp_path: Path) -> None:
    destination = lake(tmp_path)
    commit(tmp_path, 0, "one")
    first = destination.table("silver.orders").input_version()
    shutil.rmtree(tmp_path / "silver/orders")
    assert destination.table("silver.orders").input_version() is None
    commit(tmp_path, 0, "two")
    assert destination.table("silver.orders").input_version() not in (first, None)


@pytest.mark.parametrize(
    "checkpoint",
    [
        "checkpoint.parquet",
        "checkpoint.0000000001.0000000002.parquet",
        "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
    ],
)
def test_a_checkpoint_may_be_all_that_is_left(tmp_path: Path, checkpoint: str) -> None:
    destination = lake(tmp_path)
    file = commit(tmp_path, 10, "one")
    (file.parent / f"{10:020}.{checkpoint}").write_bytes(b"whatever")
    with_commit = destination.table("silver.orders").input_version()
    file.unlink()
    alone = destination.table("silver.orders").input_version()
    assert (alone or "").startswith("10-")
    assert alone != with_commit
    assert destination.table("silver.orders").input_version() == alone


def test_what_is_no_commit_is_no_version(tmp_path: Path) -> None:
    destination = lake(tmp_path)
    log = commit(tmp_path, 1, "one").parent
    before = destination.table("silver.orders").input_version()
    others = (
        f".{2:020}.json.crc",
        f"{2:020}.json.tmp",
        f"{2:020}.crc",
        "_last_checkpoint",
        f".{2:020}.json.1.tmp",
    )
    for name in (*others, f"{0:020}.{2:020}.compacted.json"):
        (log / name).write_text("x")
    assert destination.table("silver.orders").input_version() == before


def test_a_lake_that_is_not_here_is_asked_for_through_spark(tmp_path: Path) -> None:
    for destination in (
        DeltaDestination(no_spark, root=str(tmp_path / "elsewhere")),
        DeltaDestination(no_spark, root="s3a://bucket/lake"),
        DeltaDestination(no_spark, catalog="spark_catalog"),
    ):
        with pytest.raises(SparkWasAsked):
            destination.table("silver.orders").input_version()


def test_a_commit_that_changes_nothing_is_no_version(tmp_path: Path) -> None:
    destination = lake(tmp_path)
    commit(tmp_path, 0, "one")
    first = destination.table("silver.orders").input_version()
    commit(tmp_path, 1, "a load that found nothing to do", "txn")
    commit(tmp_path, 2, "VACUUM END", "commitInfo")
    assert destination.table("silver.orders").input_version() == first
    for version, action in enumerate(("remove", "metaData", "protocol", "domainMetadata"), start=3):
        commit(tmp_path, version, "a change", "txn", action)
        assert (destination.table("silver.orders").input_version() or "").startswith(f"{version}-")


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = lake(tmp_path)
    commit(tmp_path, 0, "one")

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(DestinationError, match="Permission denied"):
        destination.table("silver.orders").input_version()
