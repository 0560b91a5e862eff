"""The one parser of Spark's types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.model.types import (
    ArrayOf,
    MapOf,
    Primitive,
    SparkType,
    StructMember,
    StructOf,
    TypeProblem,
    Unparsed,
    is_nested,
    parse_type,
    stored_type,
)

PLAIN = [
    "boolean",
    "int",
    "bigint",
    "double",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
    "variant",
    "void",
]
names = st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable() or "\n" in name)


def decimals() -> st.SearchStrategy[Primitive]:
    sizes = st.integers(1, 38).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits)))
    return sizes.map(lambda both: Primitive("decimal", both))


def structs(inner: st.SearchStrategy[SparkType]) -> st.SearchStrategy[SparkType]:
    members = st.lists(st.builds(StructMember, names, inner), min_size=1, max_size=4)
    return members.map(lambda found: StructOf(tuple(found)))


leaves: st.SearchStrategy[SparkType] = st.one_of(
    st.sampled_from(PLAIN).map(Primitive),
    decimals(),
    st.integers(1, 255).map(lambda length: Primitive("varchar", (length,))),
    st.sampled_from(["interval", "interval year", "interval day to second"]).map(Primitive),
)
types = st.recursive(
    leaves,
    lambda inner: st.one_of(st.builds(ArrayOf, inner), st.builds(MapOf, inner, inner), structs(inner)),
    max_leaves=8,
)


@given(types)
def test_what_is_written_is_read_again(spark_type: SparkType) -> None:
    assert parse_type(str(spark_type)) == spark_type
    assert stored_type(str(spark_type)) == spark_type
    assert is_nested(spark_type) == isinstance(spark_type, ArrayOf | MapOf | StructOf)


@given(leaves)
def test_case_and_blanks_do_not_matter(leaf: SparkType) -> None:
    text = str(ArrayOf(leaf))
    assert parse_type(f"  {text.upper().replace(',', ' , ').replace('<', ' < ')} ") == parse_type(text)


@given(st.text(max_size=60))
def test_rubbish_is_refused_in_words_and_stored_types_pass(text: str) -> None:
    try:
        parse_type(text)
    except TypeProblem as problem:
        assert str(problem)
        assert stored_type(text) == Unparsed(text.strip().lower())


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("bigint", "bigint"),
        (" LONG ", "bigint"),
        ("Decimal( 12 , 2 )", "decimal(12,2)"),
        ("numeric(3)", "decimal(3,0)"),
        ("decimal", "decimal(10,0)"),
        ("timestamp_ltz", "timestamp"),
        ("character(3)", "char(3)"),
        ("INTERVAL DAY TO SECOND", "interval day to second"),
        ("string collate UTF8_LCASE", "string collate UTF8_LCASE"),
        ("array<map<string,int>>", "array<map<string,int>>"),
        ("struct<a:bigint, b: array<string>>", "struct<a:bigint,b:array<string>>"),
        ("struct<a bigint, `b c` STRING, date:date>", "struct<a:bigint,b c:string,date:date>"),
        (
            "struct<unit price:decimal(12,2),f(x):int,a.b-c:int>",
            "struct<unit price:decimal(12,2),f(x):int,a.b-c:int>",
        ),
        ("struct<`a,b`:int,`c:d` int,`e``f`:int>", "struct<`a,b`:int,`c:d`:int,`e``f`:int>"),
        ("struct<a:int COMMENT 'one, b:c', b int comment \"it's\">", "struct<a:int,b:int>"),
        ("struct<a string comment 'x: y', comment:string>", "struct<a:string,comment:string>"),
        ("struct<a decimal(10,2), b struct<c:int>>", "struct<a:decimal(10,2),b:struct<c:int>>"),
    ],
)
def test_types_are_normalised(text: str, normal: str) -> None:
    assert str(parse_type(text)) == normal


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("bigintt", "bigintt is not a Spark SQL type; did you mean bigint?"),
        ("uuid", "uuid is not a Spark SQL type; did you mean string?"),
        ("qqq", "qqq is not a Spark SQL type"),
        ("int(3)", "( is not expected here"),
        ("decimal(39,2)", "a decimal has a precision from 1 to 38, and its scale is not larger than that"),
        ("decimal(2,3)", "a decimal has a precision from 1 to 38, and its scale is not larger than that"),
        ("decimal(0)", "a decimal has a precision from 1 to 38, and its scale is not larger than that"),
        ("decimal(x)", "x is not a number"),
        ("decimal(²)", "² is not a number"),
        ("decimal(10,-2)", "- is misplaced"),
        ("varchar", "varchar needs a length; use string, or varchar(20)"),
        ("array<int", "> is missing"),
        ("array", "array needs its parts, such as array<bigint>"),
        ("map<int>", ", is missing"),
        ("struct<>", "> is misplaced"),
        ("struct<a>", "> is misplaced"),
        ("struct<a bigin, b:int>", "bigin is not a Spark SQL type; did you mean bigint?"),
        ("struct<a:int not null>", "NOT NULL cannot be declared inside a struct (field a)"),
        ("struct<`a:int>", "a name in backticks is not closed"),
        ("struct<a:int comment b>", "the text of a comment is missing"),
        ("int; drop table x", "; is not expected here"),
        ("bigint bigint", "bigint is not expected here"),
        ("array<" * 60 + "int" + ">" * 60, "is nested too deeply"),
    ],
)
def test_what_is_not_a_type_is_refused(text: str, problem: str) -> None:
    with pytest.raises(TypeProblem) as refused:
        parse_type(text)
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("text", "nested", "family"),
    [
        ("varchar(20)", False, "string"),
        ("string collate unicode", False, "string"),
        ("decimal", False, "decimal"),
        ("json", False, "json"),
        ("array<int>", True, "array"),
        ("struct<a:b:int>", True, "struct<a:b:int>"),
    ],
)
def test_stored_types_have_a_family(text: str, nested: bool, family: str) -> None:
    assert (is_nested(stored_type(text)), stored_type(text).family) == (nested, family)
