"""Each pair of types, with values that fit and values that would be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import ROUND_DOWN, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tallymark.errors import TypeConflict
from tallymark.spark.frames import local_frame

BAD = object()
at = datetime.fromisoformat
Casts = Callable[..., list[tuple[object, str]]]
CastsOfMany = Callable[[list[tuple[str, list[str]]]], list[list[tuple[object, str]]]]
Texts = Callable[[Sequence[str | None]], DataFrame]

FROM_TEXT: dict[str, dict[str | None, Any]] = {
    "tinyint": {"127": 127, "-128": -128, "128": BAD},
    "int": {"2147483647": 2147483647, "2147483648": BAD, "+5": 5},
    "bigint": {
        "  7 ": 7,
        "\t7\n": 7,
        "007": 7,
        "9223372036854775807": 2**63 - 1,
        "9223372036854775808": BAD,
        "-9223372036854775808": -(2**63),
        "1.0": BAD,
        "1e3": BAD,
        "0x1": BAD,
        "1_000": BAD,
        "1,000": BAD,
        "5L": BAD,
        "abc": BAD,
        "": None,
        "  \t": None,
        None: None,
    },
    "decimal(12,2)": {
        "1.239": BAD,
        "1.200": Decimal("1.20"),
        "1.2000000000000000000000000000000000000000000000000": Decimal("1.20"),
        " -.5 ": Decimal("-0.50"),
        "1e3": Decimal("1000.00"),
        "1.5E-1": Decimal("0.15"),
        "100e-2": Decimal("1.00"),
        "12.50e-3": BAD,
        "1e-400": BAD,
        "9999999999.99": Decimal("9999999999.99"),
        "10000000000": BAD,
        "NaN": BAD,
        "1.2.3": BAD,
        "12,5": BAD,
        "": None,
    },
    "decimal(38,0)": {"1" * 38: Decimal("1" * 38), "1" * 39: BAD, "0" * 50 + "7": Decimal(7)},
    "double": {
        "abc": BAD,
        "0.1": 0.1,
        "-1.5e3": -1500.0,
        "Infinity": float("inf"),
        "-inf": float("-inf"),
        "1d": BAD,
        "1F": BAD,
        "0x1p3": BAD,
        "1e400": BAD,
        "1e-400": BAD,
        "0e-400": 0.0,
        "9007199254740992": 2.0**53,
        "9007199254740993": BAD,
        "602214076000000000000": 6.02214076e20,
        " ": None,
    },
    "float": {"1.5": 1.5, "16777216": 16777216.0, "16777217": BAD, "1e39": BAD, "1,5": BAD},
    "boolean": {
        **dict.fromkeys(["true", "T", "yes", "Y", "1", " TRUE "], True),
        **dict.fromkeys(["false", "f", "No", "n", "0"], False),
        **dict.fromkeys(["on", "2", "1.0", "ja"], BAD),
        "": None,
    },
    "date": {
        "2026-11-01": date(2026, 11, 1),
        " 2026-1-5 ": date(2026, 1, 5),
        "2024-02-29": date(2024, 2, 29),
        "2026-02-29": BAD,
        "2026": BAD,
        "2026-11": BAD,
        "2026-11-01 10:00": BAD,
        "2026-11-01T00:00:00": BAD,
        "2026-11-01 junk": BAD,
        "20261101": BAD,
        "12026-11-01": BAD,
        "0000-01-01": BAD,
        "today": BAD,
        "epoch": BAD,
        "": None,
    },
    "timestamp": {
        "2026-11-01": at("2026-11-01 00:00:00"),
        "2026-11-01 10:20": at("2026-11-01 10:20:00"),
        "2026-11-01T10:20:30.123456Z": at("2026-11-01 10:20:30.123456"),
        "2026-11-01T10:20:30.123456000+02:00": at("2026-11-01 08:20:30.123456"),
        "2026-11-01 10:20:30 Europe/Paris": at("2026-11-01 09:20:30"),
        "2026-11-01T10:20:30.1234567": BAD,
        "2026-11-01T10:20:30.1234567Z": BAD,
        "2026-11-01T24:00:00": BAD,
        "10:20": BAD,
        "T10:20:30": BAD,
        "now": BAD,
        "2026": BAD,
        "2026-11": BAD,
        "": None,
        "  ": None,
    },
    "timestamp_ntz": {
        "2026-11-01T10:20:30.5": at("2026-11-01 10:20:30.500000"),
        "2026-11-01": at("2026-11-01 00:00:00"),
        "2026-11-01T10:20:30Z": BAD,
        "2026-11-01T10:20:30+02:00": BAD,
        "10:20": BAD,
        "": None,
    },
    "string": {"": "", "  ": "  ", "x'\"\n": "x'\"\n", None: None},
    "binary": {"é": bytearray("é".encode()), "": bytearray()},
}


def test_text_is_read_without_loss(cast_all: CastsOfMany) -> None:
    columns = [(target, [text_literal(text) for text in cases]) for target, cases in FROM_TEXT.items()]
    for outcomes, (target, cases) in zip(cast_all(columns), FROM_TEXT.items(), strict=True):
        found = {
            text: BAD if reason else value for text, (value, reason) in zip(cases, outcomes, strict=True)
        }
        assert found == cases, target


def text_literal(text: str | None) -> str:
    return "CAST(NULL AS STRING)" if text is None else f"CAST(X'{text.encode().hex()}' AS STRING)"


def test_text_nan_is_a_double(texts: Texts, cast: Casts) -> None:
    [(value, reason)] = cast(texts(["NaN"]), "double")
    assert value != value and not reason


def test_reasons_are_words(texts: Texts, cast: Casts) -> None:
    def reason(text: str, target: str) -> str:
        return cast(texts([text]), target)[0][1]

    assert reason("x", "int") == "not an int"
    assert reason("x", "bigint") == "not a bigint"
    assert reason("1.239", "decimal(12,2)") == "decimal(12,2) would round it"
    assert reason("1e400", "double") == "does not fit double without loss"


@pytest.mark.parametrize(
    ("target", "pattern", "cases"),
    [
        (
            "date",
            "dd/MM/yyyy",
            {" 01/02/2026 ": date(2026, 2, 1), "31/02/2026": BAD, "2026-02-01": BAD, "": None},
        ),
        ("date", "dd/MM/yyyy HH:mm", {"01/02/2026 00:00": date(2026, 2, 1), "01/02/2026 10:00": BAD}),
        (
            "timestamp",
            "yyyyMMddHHmmss",
            {"20260201102030": at("2026-02-01 10:20:30"), "20260201": BAD},
        ),
        ("timestamp_ntz", "dd.MM.yyyy HH:mm", {"01.02.2026 10:20": at("2026-02-01 10:20:00")}),
    ],
)
def test_formats(target: str, pattern: str, cases: dict[str, Any], texts: Texts, cast: Casts) -> None:
    outcomes = cast(texts(list(cases)), target, pattern)
    assert [BAD if reason else value for value, reason in outcomes] == list(cases.values())


NATIVE: list[tuple[str, str, dict[str, Any]]] = [
    (
        "double",
        "bigint",
        {"5.5D": BAD, "5.0D": 5, "double('NaN')": BAD, "9223372036854775807D": BAD, "1e300D": BAD},
    ),
    ("double", "int", {"2147483648D": BAD, "-2147483648D": -(2**31)}),
    ("double", "float", {"0.1D": BAD, "0.5D": 0.5, "1e300D": BAD}),
    ("double", "decimal(12,2)", {"0.1D": Decimal("0.10"), "1.239D": BAD, "double('inf')": BAD}),
    ("float", "double", {"0.5f": 0.5}),
    ("float", "bigint", {"9223372036854775807f": BAD, "16777216f": 16777216}),
    (
        "bigint",
        "double",
        {"9007199254740993L": BAD, "9007199254740992L": 2.0**53, "9223372036854775807L": BAD},
    ),
    ("bigint", "int", {"2147483648L": BAD, "7L": 7}),
    ("bigint", "decimal(5,2)", {"1000L": BAD, "999L": Decimal("999.00")}),
    ("int", "float", {"16777217": BAD, "16777216": 16777216.0, "2147483647": BAD}),
    ("int", "bigint", {"1": 1, "null": None}),
    ("int", "boolean", {"0": False, "1": True, "2": BAD}),
    ("decimal(10,3)", "decimal(10,2)", {"1.230": Decimal("1.23"), "1.239": BAD}),
    ("decimal(38,10)", "decimal(38,2)", {"1.23": Decimal("1.23"), "1.239": BAD}),
    ("decimal(38,2)", "decimal(38,20)", {"1.23": Decimal("1.23").quantize(Decimal("1e-20")), "1" * 30: BAD}),
    ("decimal(10,2)", "bigint", {"5.00": 5, "5.50": BAD}),
    ("decimal(20,1)", "double", {"1.1": 1.1, "1234567890123456789.1": BAD}),
    (
        "timestamp",
        "date",
        {"timestamp'2026-11-01'": date(2026, 11, 1), "timestamp'2026-11-01 00:00:01'": BAD},
    ),
    ("timestamp_ntz", "date", {"timestamp_ntz'2026-11-01 10:00'": BAD}),
    ("timestamp_ntz", "timestamp", {"timestamp_ntz'2026-11-01 10:00'": at("2026-11-01 10:00:00")}),
    ("date", "timestamp", {"date'2026-11-01'": at("2026-11-01 00:00:00")}),
    ("boolean", "string", {"true": "true"}),
    ("double", "string", {"1.5D": "1.5"}),
    ("timestamp", "string", {"timestamp'2026-11-01 10:00:00.123456'": "2026-11-01 10:00:00.123456"}),
    ("binary", "string", {"X'C3A9'": "é", "X'FF'": BAD}),
    ("array<int>", "string", {"array(1,2)": "[1,2]"}),
    ("struct<a:int,b:string>", "string", {"named_struct('a',1,'b','x')": '{"a":1,"b":"x"}'}),
    ("array<int>", "array<bigint>", {"array(1,null)": [1, None], "null": None}),
    ("map<string,int>", "map<string,bigint>", {"map('a',1)": {"a": 1}}),
    (
        "array<struct<b:int,A:date>>",
        "array<struct<a:timestamp,b:bigint,c:string>>",
        {"array(named_struct('b',1,'A',date'2026-11-01'))": [(at("2026-11-01 00:00:00"), 1, None)]},
    ),
    ("void", "bigint", {"null": None}),
]


def test_native_types_are_cast_without_loss(cast_all: CastsOfMany) -> None:
    columns = [
        (target, [value if origin == "void" else f"CAST({value} AS {origin})" for value in cases])
        for origin, target, cases in NATIVE
    ]
    for outcomes, (origin, target, cases) in zip(cast_all(columns), NATIVE, strict=True):
        assert [BAD if reason else value for value, reason in outcomes] == list(cases.values()), (
            origin,
            target,
        )


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("named_struct('a',1)", "bigint"),
        ("true", "date"),
        ("true", "int"),
        ("1.5D", "boolean"),
        ("5L", "timestamp"),
        ("timestamp'2026-01-01'", "bigint"),
        ("'x'", "array<string>"),
        ("X'00'", "bigint"),
        ("array(1.5D)", "array<bigint>"),
        ("array(1)", "map<string,int>"),
        ("named_struct('a',1,'b',2)", "struct<a:int>"),
        ("map(1,2)", "map<tinyint,int>"),
    ],
)
def test_impossible_pairs_conflict_before_any_row_is_read(
    value: str, target: str, spark: SparkSession, cast: Casts
) -> None:
    with pytest.raises(TypeConflict, match="column v") as caught:
        cast(spark.sql(f"SELECT {value} AS v"), target)
    assert caught.value.facts["target_type"] == target
    assert caught.value.hint


# Against Python's own numbers: many values in one frame, since each frame is a Spark job.

MANY = settings(
    max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, derandomize=True
)
number_texts = st.from_regex(r"\A ?[+-]?([0-9]{1,22}(\.[0-9]{0,12})?|\.[0-9]{1,6})([eE][+-]?[0-9]{1,2})? ?\Z")
plain_texts = st.decimals(
    allow_nan=False, allow_infinity=False, places=3, max_value=10**11, min_value=-(10**11)
)
zeros = st.integers(0, 5).map(lambda n: f"1.2{'0' * n}")


def fits(text: str, precision: int, scale: int) -> Decimal | None:
    with localcontext() as context:
        context.prec = 200
        number = Decimal(text.strip())
        cut = number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_DOWN)
        return cut if cut == number and abs(cut) < Decimal(10) ** (precision - scale) else None


@MANY
@given(st.lists(st.one_of(number_texts, plain_texts.map(str), zeros), min_size=300, max_size=600))
@pytest.mark.parametrize(("precision", "scale"), [(12, 2), (38, 18)])
def test_decimals_are_exact_or_refused(
    precision: int, scale: int, texts: Texts, cast: Casts, values: list[str]
) -> None:
    outcomes = cast(texts(values), f"decimal({precision},{scale})")
    for text, (value, reason) in zip(values, outcomes, strict=True):
        expected = fits(text, precision, scale)
        # Spark itself refuses a zero with a large exponent; nothing is lost by that.
        if reason and expected == 0:
            continue
        assert (value, bool(reason)) == (expected, expected is None), text


@MANY
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.integers(),
                st.sampled_from([7, 15, 31, 63]).flatmap(lambda b: st.integers(2**b - 2, 2**b + 2)),
            ),
            st.sampled_from(["{}", " {}", "{:+}", "{:05}", "-{}", "{}.0", "{}\n"]),
        ),
        min_size=300,
        max_size=600,
    )
)
@pytest.mark.parametrize(("target", "bits"), [("smallint", 15), ("bigint", 63)])
def test_integers_are_exact_or_refused(
    target: str, bits: int, texts: Texts, cast: Casts, pairs: list[tuple[int, str]]
) -> None:
    values = [form.format(number) for number, form in pairs]
    for text, (value, reason) in zip(values, cast(texts(values), target), strict=True):
        try:
            expected = int(text)
        except ValueError:
            expected = 2**100
        if not -(2**bits) <= expected < 2**bits:
            assert reason, text
        else:
            assert (value, reason) == (expected, ""), text


@MANY
@given(st.lists(st.one_of(st.floats(), st.integers(-(2**65), 2**65).map(float)), min_size=300, max_size=600))
@pytest.mark.parametrize("target", ["bigint", "float", "decimal(20,4)"])
def test_floats_come_back_as_they_were_or_are_refused(
    target: str, spark: SparkSession, cast: Casts, values: list[float]
) -> None:
    frame = local_frame(spark, [(value,) for value in values], "v double")
    for number, (value, reason) in zip(values, cast(frame, target), strict=True):
        if not reason:
            assert float(value) == number or (value != value and number != number)  # type: ignore[arg-type]
        elif target == "bigint":
            assert number != number or abs(number) >= 2**63 or not number.is_integer()
