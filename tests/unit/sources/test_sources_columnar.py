from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    TimestampType,
)

from tallymark.errors import UnreadableFile
from tallymark.sources.formats.columnar import wider_type
from tallymark.sources.read_failures import unreadable_from

FORMATS = ["parquet", "orc", "avro"]


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_come_with_their_types(landing: Any, spark: SparkSession, kind: str) -> None:
    frame = spark.sql("select 1 id, 'a' name, cast(1.5 as decimal(5,2)) amount, struct(1L x) n")
    landing.write_frame(f"a.{kind}", frame, kind)
    assert landing.types() == {
        "id": "int",
        "name": "string",
        "amount": "decimal(5,2)",
        "n": "struct<x:bigint>",
    }
    assert landing.rows() == [(1, "a", Decimal("1.50"), (1,), None)]


@pytest.mark.parametrize("kind", FORMATS)
def test_other_columns_and_wider_types_go_by_name(landing: Any, spark: SparkSession, kind: str) -> None:
    landing.write_frame(f"1.{kind}", spark.sql("select 1 id, 'a' name"), kind)
    landing.write_frame(f"2.{kind}", spark.sql("select 'Bern' city, 2L ID"), kind)
    assert landing.types() == {"id": "bigint", "name": "string", "city": "string"}
    assert landing.rows() == [(1, "a", None, None), (2, None, "Bern", None)]


@pytest.mark.parametrize("kind", FORMATS)
def test_types_that_do_not_fit_name_file_column_and_types(
    landing: Any, spark: SparkSession, kind: str
) -> None:
    landing.write_frame(f"1.{kind}", spark.sql("select 1 id, 1 qty"), kind)
    second = landing.write_frame(f"2.{kind}", spark.sql("select 1 id, 'many' qty"), kind)
    with pytest.raises(UnreadableFile, match="column qty is string, but int in") as caught:
        landing.read()
    assert caught.value.path == str(second)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("damage", ["garbage", "cut off", "empty"])
def test_corrupt_files_are_named(landing: Any, spark: SparkSession, kind: str, damage: str) -> None:
    good = landing.write_frame(f"1.{kind}", spark.range(100), kind).read_bytes()
    content = {"garbage": b"not at all " * 20, "cut off": good[:-30], "empty": b""}[damage]
    bad = landing.write(f"zürich 2.{kind}", content)
    with pytest.raises(Exception, match="2") as caught:  # Avro shows its end only when it is read
        landing.read().frame.collect()
    error = unreadable_from(caught.value, landing.files())
    assert error and error.path == str(bad)


@pytest.mark.parametrize(
    ("a", "b", "wider"),
    [
        (IntegerType(), LongType(), LongType()),
        (LongType(), ShortType(), LongType()),
        (FloatType(), DoubleType(), DoubleType()),
        (IntegerType(), DoubleType(), DoubleType()),
        (LongType(), DoubleType(), None),  # 2^53 + 1 would change
        (DecimalType(5, 2), DecimalType(8, 1), DecimalType(9, 2)),
        (DecimalType(38, 0), DecimalType(38, 2), None),
        (LongType(), DecimalType(5, 2), DecimalType(22, 2)),
        (NullType(), StringType(), StringType()),
        (StringType(), IntegerType(), None),
        (DateType(), TimestampType(), None),
    ],
)
def test_wider_types(a: DataType, b: DataType, wider: DataType | None) -> None:
    assert wider_type(a, b) == wider
    assert wider_type(b, a) == wider
