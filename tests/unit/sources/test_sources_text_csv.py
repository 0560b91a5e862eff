from __future__ import annotations

import bz2
import gzip
from typing import Any

import pytest
import zstandard
from pyspark.sql import SparkSession

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.plan import ROW_BLOCK
from tallymark.sources import heads


def test_everything_is_text(landing: Any) -> None:
    landing.write("a.csv", "id,amount,day\n007,1.50,2026-11-01\n")
    assert landing.types() == {"id": "string", "amount": "string", "day": "string"}
    assert landing.rows() == [("007", "1.50", "2026-11-01", None)]


def test_too_many_or_few_fields_are_malformed_with_their_text(landing: Any) -> None:
    landing.write("a.csv", "id,name\n1,a\n2,b,c\n3\n4,d\n")
    assert landing.rows() == [
        ("1", "a", None),
        ("2", "b", "2,b,c"),
        ("3", None, "3"),
        ("4", "d", None),
    ]


def test_quotes_line_breaks_and_empty_values(landing: Any) -> None:
    landing.write("a.csv", 'id,text\n1,"two\nlines, one field"\n2,"say ""hi"""\n3,""\n4,\n5,back\\slash\n')
    assert landing.rows() == [
        ("1", "two\nlines, one field", None),
        ("2", 'say "hi"', None),
        ("3", "", None),
        ("4", None, None),
        ("5", "back\\slash", None),
    ]


def test_reordered_and_missing_columns_go_by_name(landing: Any) -> None:
    landing.write("1.csv", "id,name\n1,a\n")
    landing.write("2.csv", "name,id\nb,2\n")
    landing.write("3.csv", "ID,city\n3,Bern\n")
    read = landing.read()
    assert [column.name for column in read.columns] == ["id", "name", "city"]
    assert landing.rows_of(read) == [
        ("1", "a", None, None),
        ("2", "b", None, None),
        ("3", None, "Bern", None),
    ]


def test_an_empty_file_has_neither_columns_nor_rows(landing: Any) -> None:
    landing.write("a.csv", "")
    landing.write("b.csv.gz", gzip.compress(b""))
    read = landing.read("*", format="csv")
    assert read.columns == ()
    assert read.frame.count() == 0
    landing.write("c.csv", "id\n1\n")
    assert landing.rows("*", format="csv") == [("1", None)]


def test_a_header_alone_gives_columns(landing: Any) -> None:
    landing.write("a.csv", "id,name")
    assert landing.types() == {"id": "string", "name": "string"}
    assert landing.rows() == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16le", "latin-1", "windows-1252"])
def test_encodings(landing: Any, encoding: str) -> None:
    landing.write("a.csv", "id,größe\n1,zürich\n".encode(encoding))
    assert landing.types(encoding=encoding) == {"id": "string", "größe": "string"}
    assert landing.rows(encoding=encoding) == [("1", "zürich", None)]


def test_a_byte_order_mark_is_no_part_of_the_first_name(landing: Any) -> None:
    landing.write("a.csv", b"\xef\xbb\xbfid,name\r\n1,a\r\n")
    assert landing.types() == {"id": "string", "name": "string"}
    landing.write("a.csv", b"\xef\xbb\xbf1,a\r\n")
    assert landing.rows(options={"header": False}) == [("1", "a", None)]


def test_rows_that_do_not_decode_are_malformed(landing: Any) -> None:
    landing.write("a.csv", b"id,name\n1,caf\xe9\n2,ok\n")
    assert landing.rows() == [("1", "caf�", '{"id":"1","name":"caf�"}'), ("2", "ok", None)]
    assert landing.rows(encoding_errors="allow") == [("1", "caf�", None), ("2", "ok", None)]
    assert landing.rows(encoding="latin-1") == [("1", "café", None), ("2", "ok", None)]


def test_a_header_that_does_not_decode(landing: Any) -> None:
    landing.write("a.csv", b"id,caf\xe9\n1,x\n")
    with pytest.raises(UnreadableFile, match="first line is not utf-8") as caught:
        landing.read()
    assert "source.encoding" in caught.value.hint


@pytest.mark.parametrize(
    ("header", "complaint"),
    [("id,Name,name", "column Name occurs 2 times in the header"), ("id,,x", "column 2 has no name")],
)
def test_ambiguous_headers(landing: Any, header: str, complaint: str) -> None:
    path = landing.write("a.csv", f"{header}\n1,2,3\n")
    with pytest.raises(UnreadableFile, match=complaint) as caught:
        landing.read()
    assert caught.value.path == str(path)


def test_a_header_longer_than_the_first_look(landing: Any) -> None:
    names = [f"column_{i}_" + "x" * 500 for i in range(40)]
    landing.write("a.csv", ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert list(landing.types()) == names


def test_a_single_line_of_ten_megabytes(landing: Any) -> None:
    landing.write("a.csv", "id,text\n1," + "x" * 10_000_000 + "\n2,b\n")
    assert [(row[0], len(row[1]), row[2]) for row in landing.rows()] == [
        ("1", 10_000_000, None),
        ("2", 1, None),
    ]
    landing.write("a.csv", "x" * 10_000_000 + ",b\n")
    assert [len(row[0]) for row in landing.rows(options={"header": False})] == [10_000_000]


def test_without_header_declared_columns_name_the_fields(landing: Any) -> None:
    landing.write("a.csv", "1,a,x\n2,b\n")
    assert landing.rows(options={"header": False}) == [("1", "a", "x", None), ("2", "b", None, "2,b")]
    read = landing.read(options={"header": False}, rules=[{"name": "id"}, {"name": "n", "from": "Nome"}])
    assert [column.name for column in read.columns] == ["id", "Nome", "_c2"]


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("a.tsv", {}, "id\tname\n1\ta,b\n"),
        ("a.csv", {"sep": ";"}, "id;name\n1;a,b\n"),
        ("a.csv", {"Delimiter": "\\t"}, "id\tname\n1\ta,b\n"),
        ("a.csv", {"sep": "||"}, "id||name\n1||a,b\n"),
        ("a.csv", {"quote": "'"}, "id,name\n1,'a,b'\n"),
        ("a.csv", {"comment": "#"}, '# made by hand\nid,name\n# more\n1,"a,b"\n'),
        ("a.csv", {"multiLine": False}, '\n\nid,name\n1,"a,b"\n'),
    ],
)
def test_dialects(landing: Any, name: str, options: dict[str, Any], text: str) -> None:
    landing.write(name, text)
    assert landing.types(options=options) == {"id": "string", "name": "string"}
    assert landing.rows(options=options) == [("1", "a,b", None)]


def test_a_null_value_of_the_user(landing: Any) -> None:
    landing.write("a.csv", 'id,name\n1,NA\n2,\n3,""\n')
    assert landing.rows(options={"nullValue": "NA"}) == [
        ("1", None, None),
        ("2", None, None),
        ("3", "", None),
    ]


def test_compression(landing: Any) -> None:
    text = b"id,name\n1,a\n"
    landing.write("1.csv.gz", gzip.compress(text) + gzip.compress(b"2,b\n"))
    landing.write("2.csv.bz2", bz2.compress(text))
    landing.write("3.csv.zst", zstandard.ZstdCompressor().compress(text))
    assert [row[0] for row in landing.rows()] == ["1", "2", "1", "1"]


def test_what_is_not_compressed_as_its_name_says(landing: Any) -> None:
    landing.write("a.csv.gz", "id\n1\n")
    with pytest.raises(UnreadableFile, match="cannot be decompressed"):
        landing.read()


def test_odd_column_names(landing: Any) -> None:
    landing.write("a.csv", "a.b,`x`,with space,_metadata\n1,2,3,4\n")
    landing.write("b.csv", "with space,a.b\n5,6\n")
    assert landing.rows() == [("1", "2", "3", "4", None), ("6", None, "5", None, None)]


@pytest.mark.parametrize("name", ["_source_file", "_TM_row", "_ingested_at"])
def test_names_of_our_own_are_refused(landing: Any, name: str) -> None:
    landing.write("a.csv", f"id,{name}\n1,2\n")
    with pytest.raises(SourceError, match=name):
        landing.read()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"mode": "dropmalformed"}, "quarantine"),
        ({"ignoreCorruptFiles": True}, "reported anyway"),
        ({"pathGlobFilter": "*.x"}, "source.files"),
        ({"encoding": "latin-1"}, "source.encoding"),
    ],
)
def test_options_that_lose_rows_are_refused(landing: Any, options: dict[str, Any], hint: str) -> None:
    landing.write("a.csv", "id\n1\n")
    with pytest.raises(SourceError) as caught:
        landing.read(options=options)
    assert hint in caught.value.hint


def test_malformed_rows_can_be_counted_alone(landing: Any) -> None:
    """Spark refuses queries on nothing but its corrupt column."""
    landing.write("a.csv", "id,name\n1,a\n2\n")
    for errors in ("quarantine", "allow"):
        frame = landing.read(encoding_errors=errors).frame
        assert frame.where("_tm_corrupt is not null").select("_tm_corrupt").count() == 1


PLAIN = [
    b"id,name\n" + b"".join(b"%d,row %d\n" % (n, n) for n in range(40)),
    b"id,name\r\n1,a\r\n2,b\r\n3,c\r\n" * 3,
    b"\xef\xbb\xbfid,name\n1,a\n\n\n2,b,c\n3\n4,\n,\n5,back\\slash",
    b"\n\nid,name\n1,a\n2,\xff\n",
    b"id,name\n",
    b"id,name",
]
NOT_PLAIN = [
    b'id,name\n1,"a\nb"\n',
    b"id,name\n1,a\n  \n2,b\n",
    b"id,name\n1,a\r2,b\n3,c\n",
    b"id,name\r\n1,a\r\n2,b\n",
    b"id,name\r1,a\r2,b\r",
    b"id,name\n1,a\n\t",
    b" \nid,name\n1,a\n",
]


@pytest.mark.parametrize("content", [*PLAIN, *NOT_PLAIN])
def test_large_files_without_quotes_are_read_in_parts_and_give_the_same(
    landing: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    landing.write("a.csv", content)
    whole = landing.rows()
    monkeypatch.setattr(heads, "_WORTH_SPLITTING", 0)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "16")
    try:
        assert heads.has_plain_lines(landing.files()[0], "utf-8") == (content in PLAIN)
        assert landing.rows() == whole
        blocks = landing.read().frame.select(ROW_BLOCK).distinct().count()
        assert blocks > 10 if content is PLAIN[0] else content in PLAIN or blocks <= 1
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_what_the_user_says_of_lines_holds(landing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_WORTH_SPLITTING", 0)
    landing.write("a.csv", "id,name\n1,'a\nb'\n2,c\n")
    assert landing.rows(options={"quote": "'"}) == [("1", "a\nb", None), ("2", "c", None)]
