from __future__ import annotations

import pytest

from tallymark.checks.types import parse_type


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("bigint", "bigint"),
        (" LONG ", "bigint"),
        ("Decimal( 12 , 2 )", "decimal(12,2)"),
        ("numeric(3)", "decimal(3,0)"),
        ("decimal", "decimal(10,0)"),
        ("timestamp_ltz", "timestamp"),
        ("array<map<string,int>>", "array<map<string,int>>"),
        ("struct<a:bigint, b: array<string>>", "struct<a:bigint,b:array<string>>"),
        ("struct<a bigint, `b c` STRING, date:date>", "struct<a:bigint,b c:string,date:date>"),
    ],
)
def test_types_are_normalised(text: str, normal: str) -> None:
    assert parse_type(text).simpleString() == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bigintt",
        "int(3)",
        "decimal(39,2)",
        "decimal(2,3)",
        "decimal(0)",
        "decimal(x)",
        "decimal(²)",
        "array<int",
        "array",
        "map<int>",
        "struct<>",
        "struct<a>",
        "int; drop table x",
        "bigint bigint",
        "uuid",
        "varchar(10)",
    ],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_type(text)
