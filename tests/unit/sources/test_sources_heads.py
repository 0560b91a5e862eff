from __future__ import annotations

import pytest

from tallymark.sources.heads import Dialect, first_record

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
