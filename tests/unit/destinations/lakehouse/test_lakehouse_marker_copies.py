"""Copies of markers, in files beside a table of this machine and in a Delta table beside others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.lakehouse import fact_files as delta_fact_files
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.history import HeldVersions
from tallymark.destinations.lakehouse.home import Folder
from tallymark.destinations.lakehouse.marker_copies import (
    APPLIED,
    FIELDS,
    RESTORED,
    FileCopies,
    MarkerCopies,
    SparkCopies,
)
from tallymark.errors import DestinationError

MOMENT = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)


def row(version: int, content_hash: str | None = None, **others: Any) -> dict[str, Any]:
    told = {"kind": APPLIED, "batch_id": f"b{version}", "sequence": version + 10, "fence": version + 20}
    made = {"table_id": "t", "version": version, "content_hash": content_hash, "committed_at": MOMENT}
    return dict.fromkeys(FIELDS) | told | made | others


def restore(version: int, to: int) -> dict[str, Any]:
    return row(version, kind=RESTORED, restored_to=to, batch_id=None, sequence=None, fence=None)


@pytest.fixture(params=["folder", "spark"])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], MarkerCopies]:
    """Of the table with this id in one place."""
    spark: SparkSession = request.getfixturevalue("spark")
    if request.param == "folder":
        return lambda table_id: FileCopies(spark, tmp_path, table_id)
    return lambda table_id: SparkCopies(spark, Folder(str(tmp_path)), table_id)


def test_contents_are_found_with_every_restore(copies: Callable[[str], MarkerCopies]) -> None:
    mine = copies("t")
    assert mine.find(["a"]).rows == []
    assert mine.find(None).through == -1
    mine.add([row(1, "a"), row(1, "b"), restore(2, 0)])
    mine.add([row(3, "c")])
    found = mine.find(["a", "z"])
    assert (found.through, found.last_sequence, found.last_fence) == (3, 13, 23)
    assert sorted((r["version"], r["content_hash"]) for r in found.rows if r["kind"] == APPLIED) == [(1, "a")]
    assert [(r["version"], r["restored_to"]) for r in found.rows if r["kind"] == RESTORED] == [(2, 0)]
    [copied] = [r for r in found.rows if r["kind"] == APPLIED]
    assert copied["committed_at"].astimezone(UTC) == MOMENT
    assert len(mine.find(None).rows) == 4


def test_loads_that_a_restore_undid_have_no_say(copies: Callable[[str], MarkerCopies]) -> None:
    mine = copies("t")
    mine.add([row(1, "a"), row(2, "b"), restore(3, 1)])
    assert mine.last_held(HeldVersions.after_restores([(3, 1)])) == 11
    assert mine.last_held(HeldVersions.after_restores([])) == 12
    commits = mine.commits(HeldVersions.after_restores([(3, 1)]))
    assert commits is not None
    assert [tuple(commit) for commit in commits.collect()] == [("b1", 11, 21)]


def test_another_table_in_the_same_place_has_no_say(copies: Callable[[str], MarkerCopies]) -> None:
    copies("old").add([row(7, "a", table_id="old")])
    assert copies("t").find(["a"]).through == -1
    assert copies("t").find(None).rows == []


def test_both_places_are_read_by_whoever_reads(spark: SparkSession, tmp_path: Path) -> None:
    """A table can be reached through a service, and as a folder by whoever works on its machine."""
    files, service = FileCopies(spark, tmp_path, "t"), SparkCopies(spark, Folder(str(tmp_path)), "t")
    files.add([row(1, "a")])
    service.add([row(2, "b")])
    for reader in (files, service):
        found = reader.find(["a", "b"])
        assert (found.through, {r["content_hash"] for r in found.rows}) == (2, {"a", "b"})
        assert reader.last_held(HeldVersions.after_restores([])) == 12


def test_many_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 4)
    mine = FileCopies(None, tmp_path, "t")  # type: ignore[arg-type]
    for version in range(20):
        mine.add([row(version, f"hash {version}")])
    left = list((tmp_path / "_tallymark/markers").iterdir())
    assert len(left) <= 4
    assert {r["content_hash"] for r in mine.find(None).rows} == {f"hash {version}" for version in range(20)}
    assert mine.find(["hash 3"]).rows[0]["version"] == 3


def test_a_file_that_goes_while_it_is_read_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = FileCopies(None, tmp_path, "t")  # type: ignore[arg-type]
    mine.add([row(1, "a")])
    listed = FactFiles.listed
    looks: list[int] = []

    def with_one_that_is_gone(self: FactFiles) -> list[Path]:
        looks.append(1)
        gone = [tmp_path / "gone.parquet"] if len(looks) == 1 else []
        return [*listed(self), *gone]

    monkeypatch.setattr(FactFiles, "listed", with_one_that_is_gone)
    assert len(mine.find(["a"]).rows) == 1
    assert len(looks) > 1


def test_a_copy_that_dies_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = FileCopies(None, tmp_path, "t")  # type: ignore[arg-type]
    mine.add([row(1, "a")])

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            mine.add([row(2, "b")])
    assert mine.find(None).through == 1
    assert len(list((tmp_path / "_tallymark/markers").iterdir())) == 1


def test_a_file_half_written_by_a_dead_process_is_not_read(tmp_path: Path) -> None:
    mine = FileCopies(None, tmp_path, "t")  # type: ignore[arg-type]
    mine.add([row(1, "a")])
    (tmp_path / "_tallymark/markers/.dead").write_bytes(b"PAR1")
    assert mine.find(None).through == 1


@pytest.mark.parametrize("rubbish", [b"", b"not parquet", b"PAR1" + b"\0" * 40 + b"PAR1"])
def test_a_file_that_is_none_of_ours_is_named(rubbish: bytes, spark: SparkSession, tmp_path: Path) -> None:
    mine = FileCopies(spark, tmp_path, "t")
    mine.add([row(1, "a")])
    junk = tmp_path / "_tallymark/markers/notes.parquet"
    junk.write_bytes(rubbish)
    with pytest.raises(DestinationError, match=str(junk)) as told:
        mine.find(["a"])
    assert "backup" in (told.value.hint or "")
    junk.unlink()
    assert len(mine.find(["a"]).rows) == 1


def test_many_files_with_rubbish_among_them_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 2)
    mine = FileCopies(spark, tmp_path, "t")
    mine.add([row(1, "a")])
    junk = tmp_path / "_tallymark/markers/notes.parquet"
    junk.write_bytes(b"not parquet")
    with pytest.raises(DestinationError, match=str(junk)):
        mine.add([row(2, "b")])
    junk.unlink()
    assert len(mine.find(None).rows) == 2
