"""Rows depend on no setting of the caller, and the caller gets back what was there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tallymark as tm
from delta_rs import rows_of
from hostile_settings import HOSTILE, PINNED, hostile_beside
from tallymark.destinations.registry import spark_needs
from tallymark.errors import ConfigError, TallymarkError
from tallymark.spark import Sessions
from tallymark.spark.launch_settings import SparkConfig, user_settings
from tallymark.spark.session_settings import is_kept_at_default
from tallymark.spark.sessions import activate


@pytest.fixture
def hostile(spark: SparkSession) -> Iterator[SparkSession]:
    """The caller's session, which is also the active one."""
    session = hostile_beside(spark)
    before = SparkSession._activeSession
    activate(session)
    SparkSession._activeSession = session
    yield session
    SparkSession._activeSession = before
    activate(spark)


def test_every_setting_has_its_hostile_value() -> None:
    assert PINNED.keys() == {key for key in HOSTILE if not is_kept_at_default(key)}
    assert [key for key, pin in PINNED.items() if pin.accepts(HOSTILE[key])] == []
    assert all(pin.why for pin in PINNED.values())


def test_a_session_has_none_of_the_callers_hostile_settings(hostile: SparkSession) -> None:
    ours = Sessions.of(hostile, spark_needs()).isolated()
    assert {key: ours.conf.get(key) for key in PINNED} == {key: pin.value for key, pin in PINNED.items()}
    legacy = [key for key in HOSTILE if is_kept_at_default(key)]
    defaults = hostile.newSession()
    assert {key: ours.conf.get(key) for key in legacy} == {key: defaults.conf.get(key) for key in legacy}


def test_what_the_caller_may_choose_holds(spark: SparkSession) -> None:
    theirs = {
        "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
        "spark.sql.catalog.elsewhere": "org.example.Catalog",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.legacy.parquet.nanosAsLong": "true",
        "spark.sql.shuffle.partitions": "3",
        "fs.s3a.access.key": "of this session only",
    }
    caller = spark.newSession()
    for key, value in theirs.items():
        caller.conf.set(key, value)
    ours = Sessions.of(caller, spark_needs()).isolated()
    assert {key: ours.conf.get(key) for key in theirs} == theirs


@pytest.mark.parametrize("key", [*PINNED, "spark.sql.legacy.timeParserPolicy"])
def test_a_project_cannot_choose_another_value(key: str) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        user_settings(SparkConfig(conf={key: HOSTILE[key]}), spark_needs())
    assert caught.value.facts == {"setting": key}


def test_a_project_may_repeat_a_value() -> None:
    conf: dict[str, str | int | float | bool] = {key: pin.value for key, pin in PINNED.items()}
    assert user_settings(SparkConfig(conf=conf), spark_needs()) == conf


TEXT = "id,at,amount,name\n1,2026-07-01 12:00:00,1.50,a\\b\n2,2026-07-02 12:00:00,,${env:HOME}\n"
COLUMNS = [
    {"name": "id", "type": "bigint"},
    {"name": "at", "type": "timestamp"},
    {"name": "amount", "type": "decimal(12,2)"},
]


@pytest.mark.parametrize("strategy", ["full_refresh", pytest.param("upsert", marks=pytest.mark.slow)])
def test_a_delta_table_is_the_same_whatever_the_caller_has_set(
    strategy: str, spark: SparkSession, hostile: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "orders.csv").write_text(TEXT)
    tables = {}
    for caller in (spark, hostile):
        table = tmp_path / f"of {id(caller)}" / "orders"
        tm.merge(
            tmp_path / "orders.csv",
            table,
            spark=caller,
            strategy=strategy,
            unique_key="id",
            columns=COLUMNS,
            provenance=False,
        )
        types = dict(spark.read.format("delta").load(str(table)).dtypes)
        tables[caller] = (types, rows_of(table))
    assert tables[hostile] == tables[spark]
    types, rows = tables[hostile]
    assert types["at"] == "timestamp"
    assert sorted(row["name"] for row in rows) == ["${env:HOME}", "a\\b"]


def test_the_caller_gets_back_what_was_there(hostile: SparkSession, tmp_path: Path) -> None:
    before = {key: hostile.conf.get(key) for key in HOSTILE}
    frame = hostile.range(3).select("id", F.expr("cast('x' AS int)").alias("n"))

    def load(number: int) -> str:
        target, destination = f"t{number}", {"type": "sqlite", "path": str(tmp_path / f"{number}.db")}
        activate(hostile)
        if number % 2:
            with pytest.raises(TallymarkError):
                tm.merge(frame, target, destination=destination, strategy="upsert", unique_key="absent")
        else:
            receipt = tm.merge(frame, target, destination=destination, strategy="append_only")
            assert receipt.inserted == 3, "what does not fit is NULL, as the caller's session has it"
        return str(hostile.range(1).select(F.lit("2026-01-01").cast("timestamp")).dtypes[0][1])

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(load, range(4))) == {"timestamp_ntz"}, "the caller's session is the active one"
    assert SparkSession.getActiveSession() is hostile
    assert {key: hostile.conf.get(key) for key in HOSTILE} == before


def test_a_program_of_the_user_cannot_change_our_settings(spark: SparkSession) -> None:
    from tallymark.spark.sessions import settings_kept

    ours = Sessions.of(spark, spark_needs()).isolated()
    with settings_kept(ours, spark_needs()):
        for key, value in HOSTILE.items():
            ours.conf.set(key, value)
        ours.conf.set("spark.sql.shuffle.partitions", "5")
    assert {key: ours.conf.get(key) for key in PINNED} == {key: pin.value for key, pin in PINNED.items()}
    assert ours.conf.get("spark.sql.legacy.timeParserPolicy") == "CORRECTED"
    assert ours.conf.get("spark.sql.shuffle.partitions") == "5"


def test_a_header_shows_nothing_of_the_environment(spark: SparkSession, tmp_path: Path) -> None:
    names = ["id", "${env:HOME}", "${system:java.home}", "${spark.app.name}", "a.b`${env:PATH}"]
    (tmp_path / "orders.csv").write_text(",".join(names) + "\n1,a,b,c,d\n")
    destination = {"type": "sqlite", "path": str(tmp_path / "shop.db")}
    receipt = tm.merge(
        tmp_path / "orders.csv",
        "orders",
        destination=destination,
        unique_key="id",
        spark=spark,
        provenance=False,
    )
    assert receipt.inserted == 1
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        cursor = connection.execute("SELECT * FROM orders")
    assert [column[0] for column in cursor.description] == names
    assert cursor.fetchall() == [("1", "a", "b", "c", "d")]
