from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row

from tallymark.errors import SourceError, UnreadableFile


def test_lines(landing: Any) -> None:
    landing.write("a.ndjson", '{"id":1,"n":{"a":[1,2]},"t":"x"}\n{bad\n\n[1]\n{"id":2}\n')
    assert landing.types() == {"id": "bigint", "n": "struct<a:array<bigint>>", "t": "string"}
    assert landing.rows() == [
        (1, Row(a=[1, 2]), "x", None),
        (None, None, None, "{bad"),
        (None, None, None, "[1]"),
        (2, None, None, None),
    ]


def test_declared_columns_keep_the_text_of_the_file(landing: Any) -> None:
    landing.write("a.ndjson", '{"Amt":0.12345678901234567890,"id":1.0}\n')
    rules = [{"from": "amt", "name": "amount", "type": "decimal(30,20)"}, {"name": "id", "type": "bigint"}]
    assert landing.types(rules=rules) == {"Amt": "string", "id": "string"}
    assert landing.rows(rules=rules) == [("0.12345678901234567890", "1.0", None)]


def test_a_declared_nested_column_stays_nested(landing: Any) -> None:
    landing.write("a.ndjson", '{"n":{"a":1}}\n')
    assert landing.types(rules=[{"name": "n", "type": "struct<a:bigint>"}]) == {"n": "struct<a:bigint>"}


def test_integers_beyond_64_bits_stay_exact(landing: Any) -> None:
    landing.write("a.ndjson", '{"id":1}\n{"id":99999999999999999999}\n')
    assert landing.types() == {"id": "decimal(20,0)"}
    assert landing.rows() == [(Decimal(1), None), (Decimal("99999999999999999999"), None)]


@pytest.mark.parametrize("number", ["9007199254740993", "9" * 39, "1e400"])
def test_a_number_that_double_would_change_makes_a_bad_row(landing: Any, number: str) -> None:
    landing.write("a.ndjson", f'{{"x":1.5}}\n{{"x":{number}}}\n{{"x":9007199254740992}}\n{{"x":-2e3}}\n')
    rows = landing.rows()
    assert landing.types() == {"x": "double"}
    assert [row[1] for row in rows] == [None, f'{{"x":"{number}"}}', None, None]
    assert [row[0] for row in rows][::2] == [1.5, 9007199254740992.0]
    assert rows[3][0] == -2000.0


def test_documents(landing: Any) -> None:
    landing.write("1.json", '\ufeff[\n{"id":1},\n{"id":2}\n]')
    landing.write("2.json", '{\n"id":3\n}')
    landing.write("3.json", '[{"id":4},{"id":')
    landing.write("4.json", "")
    assert landing.rows() == [(1, None), (2, None), (3, None), (None, '[{"id":4},{"id":')]


def test_nothing_but_malformed_records(landing: Any) -> None:
    landing.write("a.ndjson", "{bad\n{worse\n")
    assert landing.rows() == [("{bad",), ("{worse",)]


def test_nothing_at_all(landing: Any) -> None:
    landing.write("a.ndjson", "")
    landing.write("b.ndjson", "\n\n")
    read = landing.read()
    assert read.columns == () and read.frame.count() == 0


def test_a_byte_order_mark(landing: Any) -> None:
    landing.write("a.ndjson", '\ufeff{"id":1}\n{"id":2}\n')
    assert landing.rows() == [(1, None), (2, None)]


def test_broken_text(landing: Any) -> None:
    landing.write("a.ndjson", b'{"id":1,"n":{"t":"ok"}}\n{"id":2,"n":{"t":"caf\xe9"}}\n')
    first, second = landing.rows()
    assert first[-1] is None
    assert "caf�" in second[-1]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16le", "windows-1252"])
def test_encodings(landing: Any, encoding: str) -> None:
    landing.write("a.ndjson", '{"t":"zürich"}\r\n{"t":"b"}\r\n'.encode(encoding))
    assert landing.rows(encoding=encoding) == [("zürich", None), ("b", None)]


def test_lines_in_utf_16_with_a_mark_are_refused(landing: Any) -> None:
    landing.write("a.ndjson", '{"t":"ü"}\n'.encode("utf-16"))
    with pytest.raises(SourceError) as caught:
        landing.read(encoding="utf-16")
    assert "utf-16le" in caught.value.hint
    landing.write("a.ndjson", '{"t":"ü"}'.encode("utf-16"))
    assert landing.rows(encoding="utf-16", format="json") == [("ü", None)]


def test_names_that_differ_in_case_only(landing: Any) -> None:
    landing.write("a.ndjson", '{"id":1,"ID":2}\n')
    with pytest.raises(SourceError, match="id"):
        landing.read()


def test_xml(landing: Any) -> None:
    landing.write("1.xml", '<rows><row k="1"><id>007</id><n><a>1.0</a><a>2</a></n></row></rows>')
    landing.write("2.xml", "<rows><row><id>2</id></row></rows>")
    landing.write("3.xml", "")
    assert landing.types(row_tag="row") == {"_k": "string", "id": "string", "n": "struct<a:array<string>>"}
    assert landing.rows(row_tag="row") == [("1", "007", (["1.0", "2"],), None), (None, "2", None, None)]


def test_xml_encoding(landing: Any) -> None:
    text = '<?xml version="1.0" encoding="ISO-8859-1"?><rows><row><id>é</id></row></rows>'
    landing.write("a.xml", text.encode("latin-1"))
    assert landing.rows(row_tag="row", encoding="latin-1") == [("é", None)]


def test_malformed_xml(landing: Any) -> None:
    landing.write("a.xml", "<rows><row><id>1</id></row><row><id>zz</row></rows>")
    first, second = landing.rows(row_tag="row")
    assert first == ("1", None)
    assert "<id>zz</row>" in second[1]


def test_xml_that_does_not_decode_is_named(landing: Any) -> None:
    landing.write("1.xml", "<rows><row><id>1</id></row></rows>")
    bad = landing.write("2.xml", b"<rows><row><id>caf\xe9</id></row></rows>")
    with pytest.raises(UnreadableFile) as caught:
        landing.read(row_tag="row")
    assert caught.value.path == str(bad)


def test_xml_needs_a_row_tag(landing: Any) -> None:
    landing.write("a.xml", "<a/>")
    with pytest.raises(SourceError, match="row_tag"):
        landing.read()
