from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tallymark.config.pipeline_file import SourceConfig
from tallymark.errors import FileChanged, SourceError
from tallymark.model.batch import FileStat, SourceFile
from tallymark.sources import new_files as discovery
from tallymark.sources.new_files import Found, discover, nothing_known, order_files, recheck
from tallymark.sources.stores import LocalStore, Progress

NOW = datetime(2126, 1, 1, tzinfo=UTC)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


def find(
    root: Path,
    known: Mapping[str, SourceFile] | None = None,
    now: datetime = NOW,
    watched: Collection[str] = (),
    **source: Any,
) -> Found:
    config = SourceConfig.model_validate({"files": "in/*.csv", **source})
    on_record = {file.stat for file in (known or {}).values()}
    return discover(config, root, lambda paths: on_record, no_spark, now=now, watched=watched)


def write(root: Path, name: str, text: str = "id\n1\n", modified: float | None = None) -> str:
    path = root / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if modified is not None:
        os.utime(path, (modified, modified))
    return str(path)


def test_new_files_come_hashed_and_in_order(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "10.csv", "9.csv"):
        write(tmp_path, name)
    found = find(tmp_path)
    assert [Path(file.path).name for file in found.files] == ["10.csv", "9.csv", "a.csv", "b.csv"]
    assert found.listed == 4


def test_watched_paths_that_are_not_listed_have_vanished(tmp_path: Path) -> None:
    here, other, gone = write(tmp_path, "a.csv"), write(tmp_path, "b.txt"), f"{tmp_path}/in/c.csv"
    assert find(tmp_path, watched=[here, other, gone]).vanished == {other, gone}


def test_a_listing_is_compared_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever falls together, each file is listed, asked for, found or seen to be there, once."""
    monkeypatch.setattr(discovery, "_BLOCK", 3)
    paths = [write(tmp_path, f"{n % 2}/{n}.csv", f"id\n{n}\n") for n in range(10)]
    known = {file.path: file for file in find(tmp_path, files="in/*/*.csv").files}
    assert sorted(known) == sorted(paths)
    changed = write(tmp_path, "1/5.csv", "id\n1\n2\n")
    asked: list[list[str]] = []

    def recorded(some: Sequence[str]) -> set[FileStat]:
        asked.append(list(some))
        return {known[path].stat for path in some}

    config = SourceConfig(files=["in/*/*.csv", "in/1/*"])
    found = discover(config, tmp_path, recorded, no_spark, now=NOW, watched=paths)
    assert max(map(len, asked)) == 3
    assert sorted(path for some in asked for path in some) == sorted(paths)
    assert (found.listed, found.vanished) == (10, frozenset())
    assert [file.path for file in found.files] == [changed]


def test_known_files_are_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.csv")
    known = {file.path: file for file in find(tmp_path).files}
    changed = write(tmp_path, "b.csv")
    hashed: list[str] = []
    plain = LocalStore.hash

    def spy(self: LocalStore, files: Sequence[FileStat], on_progress: Progress | None = None) -> Any:
        hashed.extend(file.path for file in files)
        return plain(self, files, on_progress)

    monkeypatch.setattr(LocalStore, "hash", spy)
    assert [file.path for file in find(tmp_path, known).files] == [changed]
    assert hashed == [changed]


def test_a_changed_file_is_found_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv")
    known = {file.path: file for file in find(tmp_path).files}
    write(tmp_path, "a.csv", "id\n1\n2\n")
    (again,) = find(tmp_path, known).files
    assert again.path == path and again.content_hash != known[path].content_hash


def test_files_being_written_wait(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    write(tmp_path, "old.csv", modified=(now - timedelta(hours=1)).timestamp())
    young = write(tmp_path, "young.csv", modified=now.timestamp())
    part = write(tmp_path, "big.csv.part")
    found = find(tmp_path, now=now, files="in/*", stability={"min_age_seconds": 60})
    assert [Path(file.path).name for file in found.files] == ["old.csv"]
    assert dict(found.waiting) == {young: "modified less than 60 s ago", part: "its name ends in .part"}


def test_a_file_from_the_future_waits_only_where_an_age_is_asked_for(tmp_path: Path) -> None:
    """Clocks of machines differ, and archives hold any time."""
    now = datetime.now(UTC)
    ahead = write(tmp_path, "a.csv", modified=(now + timedelta(hours=30)).timestamp())
    assert [file.path for file in find(tmp_path, now=now).files] == [ahead]
    assert find(tmp_path, now=now, stability={"min_age_seconds": 60}).files == ()


def test_a_file_that_changes_while_it_is_hashed_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, gone = write(tmp_path, "a.csv"), write(tmp_path, "b.csv")
    plain = LocalStore.hash

    def grow(self: LocalStore, files: Sequence[FileStat], on_progress: Progress | None = None) -> Any:
        hashes = plain(self, files, on_progress)
        write(tmp_path, "a.csv", "id\n1\n2\n3\n")
        Path(gone).unlink()
        return hashes

    monkeypatch.setattr(LocalStore, "hash", grow)
    found = find(tmp_path)
    assert found.files == ()
    assert dict(found.waiting) == {
        path: "it changed while it was read",
        gone: "it disappeared while it was read",
    }


def test_names_that_spark_cannot_open(tmp_path: Path) -> None:
    write(tmp_path, "ok.csv")
    colon = write(tmp_path, "12:30.csv")
    (tmp_path / "in" / os.fsdecode(b"caf\xe9.csv")).write_text("id\n")
    found = find(tmp_path)
    assert [Path(file.path).name for file in found.files] == ["ok.csv"]
    assert [bad.path for bad in found.unreadable] == [colon, f"{tmp_path}/in/caf\\udce9.csv"]
    assert all(bad.hint == "rename the file" for bad in found.unreadable)


def test_a_name_that_no_database_keeps_is_not_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "ok.csv")
    (tmp_path / "in" / os.fsdecode(b"caf\xe9.csv")).write_text("id\n")
    asked: list[str] = []
    config = SourceConfig(files="in/*.csv")
    discover(config, tmp_path, lambda paths: asked.extend(paths) or (), no_spark, now=NOW)  # type: ignore[func-returns-value]
    assert [Path(path).name for path in asked] == ["ok.csv"]


def test_several_globs_list_a_file_once(tmp_path: Path) -> None:
    write(tmp_path, "a.csv")
    assert find(tmp_path, files=["in/*.csv", "in/a.*"]).listed == 1


def test_an_empty_folder_is_fine_but_a_missing_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert find(tmp_path) == Found((), 0, frozenset(), (), ())
    with pytest.raises(SourceError, match="does not exist") as caught:
        find(tmp_path, files="inn/*.csv")
    assert str(tmp_path / "in") in caught.value.hint


def test_a_folder_instead_of_files(tmp_path: Path) -> None:
    write(tmp_path, "a.csv")
    with pytest.raises(SourceError, match="only a folder") as caught:
        find(tmp_path, files="in")
    assert caught.value.hint.endswith("in/*")


def test_progress_is_told(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path, f"{i}.csv")
    told: list[tuple[int, int]] = []
    config = SourceConfig(files="in/*.csv")
    discover(
        config,
        tmp_path,
        nothing_known,
        no_spark,
        now=NOW,
        on_progress=lambda n, of: told.append((n, of)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_recheck_accepts_what_is_unchanged(tmp_path: Path) -> None:
    write(tmp_path, "a.csv")
    recheck(find(tmp_path).files, tmp_path, no_spark)


@pytest.mark.parametrize("change", ["gone", "grown", "same size and time"])
def test_recheck_refuses_what_changed(tmp_path: Path, change: str) -> None:
    path = Path(write(tmp_path, "a.csv", "id\n1\n"))
    files = find(tmp_path).files
    if change == "gone":
        path.unlink()
    elif change == "grown":
        path.write_text("id\n1\n2\n")
    else:
        path.write_text("id\n7\n")
        os.utime(path, ns=(files[0].modified_ns, files[0].modified_ns))
    with pytest.raises(FileChanged, match=r"a\.csv"):
        recheck(files, tmp_path, no_spark)


def test_recheck_of_a_large_file_looks_at_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing it would cost too much."""
    path = Path(write(tmp_path, "a.csv", "id\n1\n"))
    files = find(tmp_path).files
    monkeypatch.setattr("tallymark.sources.new_files._CHEAP_TO_HASH", 1)
    recheck(files, tmp_path, no_spark)
    path.write_text("id\n1\n2\n")
    os.utime(path, ns=(files[0].modified_ns, files[0].modified_ns))
    with pytest.raises(FileChanged, match=r"a\.csv"):
        recheck(files, tmp_path, no_spark)


def test_order() -> None:
    files = [SourceFile(path, 0, when, path) for path, when in (("/b", 1), ("/a", 2), ("/c", 1))]
    assert [f.path for f in order_files(files, "name")] == ["/a", "/b", "/c"]
    assert [f.path for f in order_files(files, "modified")] == ["/b", "/c", "/a"]
