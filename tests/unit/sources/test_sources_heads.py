from __future__ import annotations

import bz2
import gzip
import io
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
import zstandard

from tallymark.errors import UnreadableFile
from tallymark.sources.formats.columnar import writer_schema
from tallymark.sources.formats.excel import workbook_reader
from tallymark.sources.heads import Dialect, first_record, first_records
from tallymark.sources.stores import LocalStore

PLAIN = Dialect(",", '"', "", "utf-8")


@pytest.mark.parametrize(
    ("text", "fields", "complete"),
    [
        ("a,b\n1,2\n", ["a", "b"], True),
        ("a,b\r\n", ["a", "b"], True),
        ("a,b", ["a", "b"], False),
        ("\ufeffa,b\n", ["a", "b"], True),
        ("\n\r\n a,b\n", [" a", "b"], True),
        ('"a,1","b\nc"\n', ["a,1", "b\nc"], True),
        ('"a ""x""",b\n', ['a "x"', "b"], True),
        ('a,"b', ["a", "b"], False),
        ("a,,\n", ["a", "", ""], True),
        ("\n\n", None, False),
        ("", None, False),
    ],
)
def test_first_record(text: str, fields: list[str] | None, complete: bool) -> None:
    record = first_record(text, PLAIN)
    assert (record.fields, record.complete) == (fields, complete)


def test_comments_and_long_separators() -> None:
    assert first_record("#x\n#y\na::b\n", Dialect("::", "", "#", "utf-8")).fields == ["a", "b"]


MEMORY = 100 << 20  # bytes: far below what the bombs unpack to


def no_spark() -> NoReturn:
    raise AssertionError("no Spark is needed to look into a local file")


def peak(look: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        look()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", zstandard.compress), ("csv", bytes)],
)
def test_a_file_that_unpacks_to_far_more_is_refused(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """A gzip file of 306 kB took 0.94 GB of the driver."""
    path = tmp_path / f"bomb.csv.{ending}"
    path.write_bytes(pack(b"a" * (128 << 20)))

    def look() -> None:
        with pytest.raises(UnreadableFile, match=r"bomb.*its first record is longer than 16 MiB"):
            first_records([str(path)], PLAIN, no_spark)

    assert peak(look) < MEMORY


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("zst", zstandard.compress)])
def test_a_file_that_unpacks_to_far_more_is_read_as_far_as_its_header(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / f"large.csv.{ending}"
    path.write_bytes(pack(b"id,name\n" + b"1,a\n" * (32 << 20)))
    found: list[object] = []
    assert peak(lambda: found.append(first_records([str(path)], PLAIN, no_spark))) < MEMORY
    assert found == [{str(path): ["id", "name"]}]


def test_a_header_of_a_million_fields_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{number}" for number in range(1_000_000)) + "\n")
    started = time.monotonic()
    with pytest.raises(UnreadableFile, match=r"wide\.csv: its first record has more than 50000 fields"):
        first_records([str(path)], PLAIN, no_spark)
    assert time.monotonic() - started < 20


def test_an_avro_file_whose_numbers_never_end(tmp_path: Path) -> None:
    path = tmp_path / "bomb.avro"
    path.write_bytes(b"Obj\x01" + b"\xff" * (20 << 20))
    started = time.monotonic()
    with pytest.raises(UnreadableFile, match="its Avro schema is longer than 16 MiB"):
        writer_schema(LocalStore(), [str(path)], 64 << 10)
    assert time.monotonic() - started < 20


def workbook(part: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(part, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("part", "limits"),
    [("xl/sharedStrings.xml", (1 << 40, 100 << 20)), ("xl/worksheets/sheet1.xml", (100 << 20, 1 << 40))],
)
def test_a_workbook_that_unpacks_to_far_more_is_refused(part: str, limits: tuple[int, int]) -> None:
    data = workbook(part, b" " * (200 << 20))
    batch = pa.RecordBatch.from_arrays([pa.array(["a.xlsx"]), pa.array([data])], names=["path", "content"])
    read = workbook_reader(None, True, "MISSING", "MARK", limits)
    found: list[pa.RecordBatch] = []
    assert peak(lambda: found.extend(read([batch]))) < MEMORY
    [problem] = found[0].column(3).to_pylist()
    assert problem == f"cannot be read as a workbook: {part} unpacks to 200 MiB, and at most 100 MiB are read"


def test_entities_in_a_workbook_do_not_multiply() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    made = io.BytesIO()
    openpyxl.Workbook().save(made)
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<?xml version="1.0"?><!DOCTYPE sst [<!ENTITY e0 "lol">{levels}]><sst>&e9;</sst>'
    packed = io.BytesIO()
    with zipfile.ZipFile(made) as book, zipfile.ZipFile(packed, "w") as changed:
        for name in book.namelist():
            content = book.read(name)
            if name == "xl/workbook.xml":
                content = bomb.encode()
            changed.writestr(name, content)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a.xlsx"]), pa.array([packed.getvalue()])], names=["path", "content"]
    )
    found: list[pa.RecordBatch] = []
    read = workbook_reader(None, True, "MISSING", "MARK")
    assert peak(lambda: found.extend(read([batch]))) < MEMORY
    assert found[0].column(3).to_pylist()[0].startswith("cannot be read as a workbook: ")
