"""What holds for every format: positions, files, names, failures."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tallymark.config.pipeline_file import SourceConfig
from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.sources.hadoop import HadoopStore
from tallymark.sources.read_failures import unreadable_from
from tallymark.sources.read_files import read_files

ODD_NAMES = ["a b.csv", "100%25.csv", "x+y&z=1.csv", "zürich 東京 😀.csv", "br[1]{a}*.csv", "q'u\"o`te$.csv",
             "back\\slash.csv", "nb\u00a0sp\u2028.csv", "a#b?c;d,e^|~.csv", "new\nline.csv", "day=1/a.csv"]  # fmt: skip


def test_every_row_knows_its_file(landing: Any) -> None:
    for name in ODD_NAMES:
        landing.write(name, f"id\n{len(name)}\n")
    read = landing.read("**/*.csv")
    rows = {row[FILE_ORDER]: row for row in read.frame.collect()}
    assert len(rows) == len(ODD_NAMES) == len(read.files)
    for number, file in enumerate(read.files):
        assert rows[number]["_source_file"] == file.path
        assert rows[number]["_source_file_hash"] == file.content_hash
        assert rows[number]["id"] == str(len(file.path.removeprefix(f"{landing.folder}/")))


def test_one_file_gives_the_same_columns_as_many(landing: Any) -> None:
    landing.write("1.csv", "id\n1\n")
    one = landing.read().frame
    landing.write("2.csv", "id\n2\n")
    many = landing.read().frame
    assert [(f.name, f.dataType) for f in one.schema] == [(f.name, f.dataType) for f in many.schema]
    assert one.columns == [
        "id",
        FILE_ORDER,
        ROW_BLOCK,
        ROW_ORDER,
        "_tm_corrupt",
        "_source_file_hash",
        "_source_file",
    ]
    assert dict(many.dtypes)[FILE_ORDER] == "int"
    assert {dict(many.dtypes)[name] for name in (ROW_BLOCK, ROW_ORDER)} == {"bigint"}


@pytest.mark.parametrize(
    ("name", "source", "line"),
    [
        ("a.csv", {"options": {"header": False, "multiLine": False}}, "{}\n"),
        ("a.ndjson", {}, '{{"n":{}}}\n'),
        ("a.txt", {}, "{}\n"),
    ],
)
def test_order_in_a_file_of_many_splits(
    landing: Any, spark: SparkSession, name: str, source: dict[str, Any], line: str
) -> None:
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    landing.session = lambda: spark
    landing.write("1" + name, "".join(line.format(i) for i in range(5000)))
    landing.write("2" + name, "".join(line.format(i) for i in range(5000, 9000)))
    read = landing.read(**source)
    assert read.frame.select(ROW_BLOCK).distinct().count() > 5
    assert [int(row[0]) for row in landing.rows_of(read)] == list(range(9000))


def test_files_of_another_store(landing: Any, spark: SparkSession) -> None:
    """As for a cloud URL: names, hashes and heads come through Spark."""
    for name in ("a b%20.csv", "zü+.csv"):
        landing.write(name, f"id,name\n1,{name}\n")
    store = HadoopStore(spark)
    stats = store.list(f"file:{landing.folder}/*.csv")
    hashes = store.hash(stats)
    files = [SourceFile(f.path, f.size, f.modified_ns, str(hashes[f.path])) for f in stats]
    read = read_files(spark, SourceConfig(files="x"), (), files, landing.folder)
    assert {(row["name"], row["_source_file"]) for row in read.frame.collect()} == {
        (name, f"file:{landing.folder}/{name}") for name in ("a b%20.csv", "zü+.csv")
    }


def test_a_truncated_file_is_named(landing: Any) -> None:
    landing.write("1.csv", "id\n1\n")
    whole = gzip.compress(b"id\n" + os.urandom(100_000).hex().encode())
    bad = landing.write("zürich 2.csv.gz", whole[:-5000])
    files = landing.files()
    with pytest.raises(Exception, match="FAILED_READ_FILE") as caught:
        landing.read().frame.collect()
    error = unreadable_from(caught.value, files)
    assert error and error.path == str(bad)
    assert "Unexpected end of input stream" in error.message


def test_a_file_that_vanished_is_named(landing: Any) -> None:
    landing.write("1.csv", "id\n1\n")
    second = landing.write("2.csv", "id\n2\n")
    read, files = landing.read(), landing.files()
    second.unlink()
    with pytest.raises(Exception, match=r"2\.csv") as caught:
        read.frame.collect()
    error = unreadable_from(caught.value, files)
    assert error and error.path == str(second) and "gone" in error.message


def test_failures_about_other_files_are_not_ours() -> None:
    files = [SourceFile("/in/a.csv", 0, 0, "x")]
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///table/part-0.parquet."
    assert unreadable_from(RuntimeError(text), files) is None
    assert unreadable_from(RuntimeError("out of memory"), files) is None


def test_the_longest_name_that_fits_is_the_file() -> None:
    files = [SourceFile("/in/a.csv", 0, 0, "x"), SourceFile("/in/a.csv.gz", 0, 0, "y")]
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a.csv.gz.  SQLSTATE"
    error = unreadable_from(RuntimeError(text), files)
    assert error and error.path == "/in/a.csv.gz"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_without_permission(landing: Any) -> None:
    path = landing.write("a.csv", "id\n1\n")
    files = landing.files()
    path.chmod(0)
    with pytest.raises(UnreadableFile, match="Permission denied"):
        read_files(landing.session(), SourceConfig(files="*"), (), files, landing.folder)


def test_the_format_comes_from_the_name(landing: Any) -> None:
    landing.write("a.CSV.gz", gzip.compress(b"id\n1\n"))
    assert landing.rows() == [("1", None)]
    landing.write("b.json", "{}")
    with pytest.raises(SourceError, match="different extensions") as caught:
        landing.read()
    assert "source.format" in caught.value.hint
    (landing.folder / "b.json").unlink()
    (landing.folder / "a.CSV.gz").rename(landing.folder / "a.dat")
    with pytest.raises(SourceError, match="not known") as caught:
        landing.read()
    assert "source.format" in caught.value.hint


def test_nothing_is_read_before_it_is_asked_for(landing: Any) -> None:
    """Reading a CSV looks at headers only; the rows wait for an action."""
    path: Path = landing.write("a.csv", "id\n1\n")
    read = landing.read()
    path.write_text("id\n7\n")
    assert landing.rows_of(read) == [("7", None)]
