from __future__ import annotations

import gzip
from typing import Any

import pytest

from tallymark.errors import SourceError

FIELDS = [{"name": "id", "start": 1, "width": 4}, {"name": "city", "start": 5, "width": 6}]


def test_lines(landing: Any) -> None:
    landing.write("a.txt", b'\xef\xbb\xbfone\n\ntwo, "2"\r\n')
    assert landing.rows() == [("one", None), ("", None), ('two, "2"', None)]
    assert landing.types(rules=[{"name": "line"}]) == {"line": "string"}


def test_broken_lines(landing: Any) -> None:
    landing.write("a.txt", b"caf\xe9\nok\n")
    assert landing.rows() == [("caf�", "caf�"), ("ok", None)]
    assert landing.rows(encoding_errors="allow") == [("caf�", None), ("ok", None)]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16le", "utf-32"])
def test_encodings(landing: Any, encoding: str) -> None:
    landing.write("a.txt.gz", gzip.compress("zürich\r\n\nß\n".encode(encoding)))
    assert landing.rows(encoding=encoding) == [("zürich", None), ("", None), ("ß", None)]


def test_undecodable_bytes_of_another_encoding(landing: Any) -> None:
    landing.write("a.txt", b"ok\nno \xff\n")
    assert landing.rows(encoding="ascii") == [("ok", None), ("no �", "no �")]


def test_an_unknown_encoding(landing: Any) -> None:
    landing.write("a.txt", "x")
    with pytest.raises(SourceError, match="utf8x") as caught:
        landing.read(encoding="utf8x")
    assert "utf-8" in caught.value.hint


def test_fixed_width(landing: Any) -> None:
    landing.write("a.txt", "0001Zürich\n0002Bern\n0003      \n\n0004\n")
    assert landing.rows(format="fixed_width", fields=FIELDS) == [
        ("0001", "Zürich", None),
        ("0002", "Bern", None),
        ("0003", None, None),
        ("0004", None, "0004"),
    ]
