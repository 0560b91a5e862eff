from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from tallymark.checks.conform import PROBLEMS, RAW, Conformed
from tallymark.config.pipeline_file import ColumnConfig
from tallymark.errors import CheckError, ConfigError, TypeConflict
from tallymark.model.table import Column, TableShape
from tallymark.spark.frames import local_frame

Source = Callable[..., DataFrame]
Conform = Callable[..., Conformed]


def rule(name: str, **fields: object) -> ColumnConfig:
    return ColumnConfig.model_validate({"name": name, **fields})


@pytest.fixture
def orders(spark: SparkSession, source: Source) -> DataFrame:
    return source(spark.sql("SELECT '7' AS Order_ID, '1.50' AS Amt, 'x' AS note"))


def test_columns_are_renamed_and_typed(orders: DataFrame, conformed: Conform) -> None:
    made = conformed(
        orders, rule("order_id", type="BIGINT"), rule("amount", **{"from": "amt"}, type="dec(12,2)")
    )
    assert made.columns == (
        Column("order_id", "bigint"),
        Column("amount", "decimal(12,2)"),
        Column("note", "string"),
    )
    assert made.frame.columns == [
        *("order_id", "amount", "note", "_source_file_hash", "_source_file"),
        *("_tm_file", "_tm_block", "_tm_row", PROBLEMS, RAW),
    ]
    [row] = made.frame.collect()
    assert (row.order_id, str(row.amount), row.note, row[PROBLEMS], row[RAW]) == (7, "1.50", "x", [], None)


def test_the_tables_type_and_spelling_hold_where_no_rule_does(orders: DataFrame, conformed: Conform) -> None:
    table = TableShape((Column("order_id", "int"), Column("AMT", "double")), version="1")
    made = conformed(orders, rule("amt", type="decimal(12,2)"), table=table)
    assert made.columns[:2] == (Column("order_id", "int"), Column("AMT", "decimal(12,2)"))


def test_a_type_only_spark_knows_passes_when_it_is_the_same(
    spark: SparkSession, source: Source, conformed: Conform
) -> None:
    frame = source(spark.sql("SELECT parse_json('{}') AS v, INTERVAL '1' DAY AS i"))
    same = TableShape((Column("v", "variant"), Column("i", "interval day")), version="1")
    assert [column.type for column in conformed(frame, table=same).columns] == ["variant", "interval day"]
    with pytest.raises(TypeConflict, match="column v"):
        conformed(frame, table=TableShape((Column("v", "interval day"),), version="1"))


def test_a_declared_column_that_the_source_lacks_is_null(orders: DataFrame, conformed: Conform) -> None:
    made = conformed(orders, rule("discount", type="decimal(5,2)"))
    assert made.columns[-1] == Column("discount", "decimal(5,2)")
    assert made.frame.collect()[0].discount is None


@pytest.mark.parametrize("how", ["rule", "key", "required"])
def test_a_required_column_that_the_source_lacks_is_an_error_with_a_suggestion(
    how: str, orders: DataFrame, conformed: Conform
) -> None:
    rules = [rule("orderid", required=True)] if how == "rule" else []
    with pytest.raises(CheckError, match="orderid") as caught:
        conformed(
            orders,
            *rules,
            unique_key=["orderid"] if how == "key" else [],
            required=["orderid"] if how == "required" else [],
        )
    assert "Order_ID" in caught.value.hint


def test_one_source_column_may_fill_two_targets(orders: DataFrame, conformed: Conform) -> None:
    made = conformed(orders, rule("a", **{"from": "amt"}), rule("b", **{"from": "amt"}, type="double"))
    assert [column.name for column in made.columns] == ["Order_ID", "a", "b", "note"]


def test_two_columns_for_one_target_are_an_error(orders: DataFrame, conformed: Conform) -> None:
    with pytest.raises(ConfigError, match="Amt and note would both become note"):
        conformed(orders, rule("note", **{"from": "Amt"}))


@pytest.mark.parametrize("name", ["_TM_row", "_source_file", "_Ingested_At"])
def test_names_of_our_own_are_refused_with_a_way_out(
    name: str, spark: SparkSession, source: Source, conformed: Conform
) -> None:
    frame = source(local_frame(spark, [("1",)], "v string"))
    with pytest.raises(CheckError, match="column ") as caught:
        conformed(frame, rule(name, **{"from": "v"}))
    assert "from" in caught.value.hint


def test_hostile_source_names_can_be_renamed(spark: SparkSession, source: Source, conformed: Conform) -> None:
    frame = source(local_frame(spark, [("1", "x")], "`a ``b``.c (d)` string, `e.f` string"))
    made = conformed(frame, rule("n", **{"from": "A `b`.c (d)"}, type="int"))
    row = made.frame.collect()[0]
    assert (row["n"], row["e.f"]) == (1, "x")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"type": "variant"}, "values cannot be cast to variant"),
        ({"type": "bigint", "format": "yyyy"}, "remove `format`"),
        ({"format": "yyyy"}, "type: date"),
        ({"type": "date", "format": "YYYY-QQQQ["}, "yyyy"),
    ],
)
def test_wrong_rules_name_column_and_way_out(
    bad: dict[str, str], words: str, orders: DataFrame, conformed: Conform
) -> None:
    with pytest.raises(ConfigError, match="note") as caught:
        conformed(orders, rule("note", **bad))
    assert words in str(caught.value)


def test_every_problem_of_a_row_is_named(spark: SparkSession, source: Source, conformed: Conform) -> None:
    frame = source(
        local_frame(
            spark,
            [("1", "5", "a"), ("x", "5,0", "b"), (None, "1", ""), ("  ", "1", None), ("4", "", "d")],
            "id string, qty string, note string",
        )
    )
    made = conformed(
        frame,
        rule("id", type="bigint"),
        rule("qty", type="int", required=True),
        unique_key=["ID"],
        required=["note"],
    )
    rows = made.frame.orderBy("_tm_row").collect()
    assert [[(p.column, p.reason, p.value) for p in row[PROBLEMS]] for row in rows] == [
        [],
        [("id", "not a bigint", "x"), ("qty", "not an int", "5,0")],
        [("id", "null key", None)],
        [("id", "null key", "  "), ("note", "required value is missing", None)],
        [("qty", "required value is missing", "")],
    ]
    assert rows[0][RAW] is None
    assert rows[3][RAW] == '{"id":"  ","qty":"1","note":null}'


def test_a_malformed_record_has_that_one_problem(
    spark: SparkSession, source: Source, conformed: Conform
) -> None:
    frame = source(
        local_frame(spark, [("x", "bad,line"), ("x", "caf\ufffd"), ("1", None)], "id string, c string"),
        corrupt="c",
    )
    made = conformed(frame, rule("id", type="bigint"), unique_key=["id"]).frame.orderBy("_tm_row")
    rows = made.collect()
    assert [[(p.column, p.reason, p.value) for p in row[PROBLEMS]] for row in rows] == [
        [("", "malformed record", "bad,line")],
        [("", "not valid UTF-8", "caf\ufffd")],
        [],
    ]
    assert [row[RAW] for row in rows] == ["bad,line", "caf\ufffd", None]


def test_a_frame_without_files_is_taken_too(spark: SparkSession, conformed: Conform) -> None:
    frame = spark.sql("SELECT 1 AS id, 0 AS _tm_file, 0L AS _tm_block, 0L AS _tm_row")
    row = conformed(frame, unique_key=["id"]).frame.collect()[0]
    assert (row.id, row._source_file, row[PROBLEMS]) == (1, None, [])


def test_an_empty_file_has_the_columns_of_the_table(spark: SparkSession, conformed: Conform) -> None:
    nothing = local_frame(spark, [], "_tm_file int, _tm_block bigint, _tm_row bigint")
    table = TableShape((Column("id", "bigint"), Column("v", "variant")), version="1")
    made = conformed(nothing, rule("note", type="string"), table=table, unique_key=["id"])
    assert [column.name for column in made.columns] == ["note", "id", "v"]
    assert made.frame.collect() == []
    with pytest.raises(CheckError, match="id is required"):
        conformed(nothing, unique_key=["id"])
