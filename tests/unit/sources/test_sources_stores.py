from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import FileStat
from tallymark.sources.hadoop import HadoopStore
from tallymark.sources.stores import FileStore, LocalStore, store_for

ODD_NAMES = [
    "a b.csv",
    "100%25.csv",
    "x+y&z=1.csv",
    "zürich 東京 😀.csv",
    "br[1]{a}*.csv",
    "q'u\"o`te$.csv",
    "back\\slash.csv",
    "nb\u00a0sp.csv",
    "a#b?c;d,e.csv",
]


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


@pytest.fixture(params=["local", "hadoop"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest) -> FileStore:
    return LocalStore() if kind == "local" else HadoopStore(request.getfixturevalue("spark"))


@pytest.fixture
def prefix(kind: str) -> str:
    """Both stores pass the same tests; one of them names files by URL."""
    return "" if kind == "local" else "file:"


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def listed(store: FileStore, glob: str, prefix: str, folder: Path) -> list[str]:
    files = store.list(f"{prefix}{folder}/{glob}")
    return sorted(file.path.removeprefix(f"{prefix}{folder}/") for file in files)


def test_lists_regular_visible_files(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "c.txt", ".hidden.csv", "_tmp.csv", "dir.csv/inner.csv", "_d/x.csv")
    assert listed(store, "*.csv", prefix, tmp_path) == ["a.csv", "b.csv"]


def test_lists_below(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "x/b.csv", "x/y/c.csv", "x/_tmp/d.csv", ".git/e.csv", "z/f.txt", "day=1/g.csv")
    assert listed(store, "**/*.csv", prefix, tmp_path) == ["a.csv", "day=1/g.csv", "x/b.csv", "x/y/c.csv"]
    assert listed(store, "*/*.csv", prefix, tmp_path) == ["day=1/g.csv", "x/b.csv"]
    assert listed(store, "{x,z}/*", prefix, tmp_path) == ["x/b.csv", "z/f.txt"]


def test_lists_a_file_once_that_a_glob_meets_twice(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "x/x/a.csv", "x/b.csv")
    assert listed(store, "{x,*}/*.csv", prefix, tmp_path) == ["x/b.csv"]
    assert listed(store, "**/x/**/*.csv", prefix, tmp_path) == ["x/b.csv", "x/x/a.csv"]


def test_hashes_and_stats_files_with_odd_names(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, *ODD_NAMES)
    files = list(store.list(f"{prefix}{tmp_path}/*"))
    assert sorted(file.path.rpartition("/")[2] for file in files) == sorted(ODD_NAMES)
    hashes = store.hash(files)
    for file in files:
        content = file.path.rpartition("/")[2].encode()
        assert file.size == len(content)
        assert hashes[file.path] == hashlib.sha256(content).hexdigest()
    paths = [file.path for file in files]
    assert store.stat(paths) == {file.path: file for file in files}
    assert store.head(paths, 3) == {file.path: file.path.rpartition("/")[2].encode()[:3] for file in files}


def test_stat_leaves_out_what_is_missing(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    path = f"{prefix}{tmp_path}/a.csv"
    assert list(store.stat([path, path + ".gone", f"{prefix}{tmp_path}/no/where.csv"])) == [path]


def test_a_missing_folder_is_a_mistake(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "orders/a.csv")
    glob = f"{prefix}{tmp_path}/ordres/*.csv"
    assert list(store.list(glob)) == []
    mistake = store.why_nothing(glob)
    assert mistake and "ordres" in mistake.message and "does not exist" in mistake.message


def test_no_files_yet_is_no_mistake(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.txt")
    assert store.why_nothing(f"{prefix}{tmp_path}/*.csv") is None


def test_only_a_folder_is_a_mistake(store: FileStore, prefix: str, tmp_path: Path) -> None:
    touch(tmp_path, "orders/a.csv")
    mistake = store.why_nothing(f"{prefix}{tmp_path}/orders")
    assert mistake and f"{tmp_path}/orders/*" in mistake.hint


def test_one_unreadable_file_does_not_spoil_the_hashes_of_others(
    store: FileStore, prefix: str, tmp_path: Path
) -> None:
    touch(tmp_path, "a.csv", "b.csv", "c.csv")
    files = list(store.list(f"{prefix}{tmp_path}/*.csv"))
    if os.getuid() == 0:  # who may read everything
        (tmp_path / "b.csv").unlink()
    else:
        (tmp_path / "b.csv").chmod(0)
    hashes = store.hash(files)
    outcome = hashes.pop(f"{prefix}{tmp_path}/b.csv")
    assert isinstance(outcome, UnreadableFile) and "b.csv" in outcome.message
    assert all(isinstance(h, str) for h in hashes.values()) and len(hashes) == 2


def test_hadoop_refuses_to_hash_what_a_row_cannot_hold(spark: SparkSession) -> None:
    huge = FileStat("s3a://b/huge.csv", 3 << 30, 0)
    outcome = HadoopStore(spark).hash([huge])[huge.path]
    assert isinstance(outcome, UnreadableFile) and "2 GiB" in outcome.message


def test_the_closest_folder_is_suggested(tmp_path: Path) -> None:
    touch(tmp_path, "landing/orders/a.csv")
    mistake = LocalStore().why_nothing(f"{tmp_path}/landing/ordres/deep/*.csv")
    assert mistake and mistake.hint == f"did you mean {tmp_path}/landing/orders?"


def test_a_pipe_never_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    path = f"{tmp_path}/a.csv"
    assert list(LocalStore().list(f"{tmp_path}/*.csv")) == []
    assert isinstance(LocalStore().hash([FileStat(path, 0, 0)])[path], UnreadableFile)
    with pytest.raises(UnreadableFile):
        LocalStore().head([path], 10)


def test_a_dangling_link_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to(tmp_path / "nowhere")
    assert list(LocalStore().list(f"{tmp_path}/*.csv")) == []


def test_links_to_a_parent_do_not_go_round(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.csv")
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    assert [file.path for file in LocalStore().list(f"{tmp_path}/**/*.csv")] == [f"{tmp_path}/x/a.csv"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may list every folder")
def test_a_closed_folder_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    touch(tmp_path, "in/a.csv")
    (tmp_path / "in").chmod(0)
    try:
        with pytest.raises(SourceError, match="cannot be listed"):
            list(LocalStore().list(f"{tmp_path}/in/*.csv"))
    finally:
        (tmp_path / "in").chmod(0o700)


def test_a_literal_name_with_glob_characters(tmp_path: Path) -> None:
    touch(tmp_path, "br[1].csv", "br1.csv")
    assert [f.path for f in LocalStore().list(f"{tmp_path}/br[1].csv")] == [f"{tmp_path}/br[1].csv"]


def test_a_hidden_name_is_explained(tmp_path: Path) -> None:
    touch(tmp_path, "_a.csv")
    assert list(LocalStore().list(f"{tmp_path}/_a.csv")) == []
    mistake = LocalStore().why_nothing(f"{tmp_path}/_a.csv")
    assert mistake and "hidden" in mistake.message


def test_local_globs_never_start_spark(tmp_path: Path) -> None:
    for glob in ("in/*.csv", f"{tmp_path}/in/*.csv", f"file://{tmp_path}/in/*.csv", "../x/in/*.csv"):
        store, absolute = store_for(glob, tmp_path, no_spark)
        assert isinstance(store, LocalStore)
        assert absolute.startswith("/") and ".." not in absolute


def test_other_schemes_are_spark_s(spark: SparkSession, tmp_path: Path) -> None:
    store, glob = store_for("s3a://bucket/in/*.csv", tmp_path, lambda: spark)
    assert isinstance(store, HadoopStore) and glob == "s3a://bucket/in/*.csv"


def test_ten_thousand_files_take_seconds(tmp_path: Path) -> None:
    for i in range(10_000):
        (tmp_path / f"{i}.csv").write_bytes(b"id\n%d\n" % i)
    started = time.monotonic()
    files = list(LocalStore().list(f"{tmp_path}/*.csv"))
    hashes = LocalStore().hash(files)
    assert len(set(hashes.values())) == 10_000
    assert time.monotonic() - started < 20
