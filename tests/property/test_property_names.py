"""Hostile names of columns, tables and files: they come back as they are, or are refused with a reason."""

from __future__ import annotations

import csv
import os
import sqlite3
import string
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import tallymark as tm
from delta_rs import rows_of
from tallymark.errors import ConfigError, PlanError, SourceError, TallymarkError

EXAMPLES = max(2, int(os.environ.get("TALLYMARK_EXAMPLES", "60")) // 30)

NASTY = [
    *(
        "`",
        "``",
        "'",
        '"',
        "\\",
        ".",
        "*",
        "%",
        "?",
        "#",
        "@v1",
        ":",
        ";",
        ",",
        "/",
        "..",
        "|",
        "&",
        "$",
        "~",
    ),
    *(
        "${env:HOME}",
        "${system:user.dir}",
        "${spark.app.name}",
        "${hiveconf:x}",
        "{{ 1 }}",
        "{%",
        "%s",
        "{0}",
    ),
    *(
        "(",
        ")",
        "[0]",
        "{",
        "}",
        "<",
        ">",
        "=",
        "--",
        "/*",
        "*/",
        "\n",
        "\r\n",
        "\t",
        " ",
        "\u00a0",
        "\u2028",
    ),
    *("é", "e\u0301", "İ", "ß", "😀", "日本", "a", "b", "Z", "1", "_", "select", "null", "true", "count(*)"),
    *("id", "i", "t", "x.y", "`id`", "labels", "_metadata", "_c0", "current", "incoming"),
]
PIECES = st.lists(
    st.one_of(st.sampled_from(NASTY), st.sampled_from(string.ascii_letters)), min_size=1, max_size=5
)
NAMES = st.lists(PIECES.map("".join), min_size=1, max_size=12, unique_by=str.casefold).filter(
    lambda names: "id" not in {name.casefold().strip() for name in names}
)
MEANT = (ConfigError, PlanError, SourceError)  # the user can do something about it
AT_MOST = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def load(folder: Path, names: list[str], destination: dict[str, object], spark: SparkSession) -> None:
    """A first load, its plan, and one that changes a row."""
    for batch, value in (("a", "x"), ("b", "${env:HOME}'`")):
        file = folder / f"{batch}.csv"
        with file.open("w", newline="", encoding="utf-8") as text:
            writer = csv.writer(text, quoting=csv.QUOTE_ALL)
            writer.writerows([["id", *names], ["1", *[value] * len(names)], ["2", *["y"] * len(names)]])
        options = {"destination": destination, "unique_key": "id", "provenance": False, "spark": spark}
        report = tm.plan(file, "orders", **options)  # type: ignore[arg-type]
        receipt = tm.merge(file, "orders", **options)  # type: ignore[arg-type]
        assert (report.counts.inserted, report.counts.updated) == (receipt.inserted, receipt.updated)


def refused(folder: Path, names: list[str], destination: dict[str, object], spark: SparkSession) -> bool:
    """Whether the load says why it does not take them. Never half: nothing is there then."""
    try:
        load(folder, names, destination, spark)
    except MEANT as error:
        assert repr(os.environ["HOME"])[1:-1] not in str(error)
        assert any(name in str(error) or repr(name)[1:-1] in str(error) for name in names), str(error)
        return True
    return False


@given(names=NAMES)
@AT_MOST
def test_columns_of_a_database(spark: SparkSession, names: list[str]) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        destination: dict[str, object] = {"type": "sqlite", "path": str(folder / "shop.db")}
        if refused(folder, names, destination, spark):
            return
        connection = sqlite3.connect(folder / "shop.db")
        cursor = connection.execute("SELECT * FROM orders ORDER BY id")
        assert [column[0] for column in cursor.description] == ["id", *names]
        assert [row[1:] for row in cursor] == [("${env:HOME}'`",) * len(names), ("y",) * len(names)]
        connection.close()


@pytest.mark.slow
@given(names=NAMES)
@AT_MOST
def test_columns_of_a_delta_table(spark: SparkSession, names: list[str]) -> None:
    """With column mapping, which every name needs that Parquet cannot hold."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        properties = {"delta.columnMapping.mode": "name"}
        destination: dict[str, object] = {"type": "delta", "path": str(folder), "properties": properties}
        if refused(folder, names, destination, spark):
            return
        rows = spark.read.format("delta").load(str(folder / "orders")).orderBy("id")
        assert rows.columns == ["id", *names]
        assert [tuple(row)[1:] for row in rows.collect()] == [
            ("${env:HOME}'`",) * len(names),
            ("y",) * len(names),
        ]


@given(name=PIECES.map("".join))
@AT_MOST
def test_tables_of_a_database(spark: SparkSession, name: str) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "a.csv").write_text("id,v\n1,x\n")
        destination = {"type": "sqlite", "path": str(folder / "shop.db")}
        try:
            tm.merge(folder / "a.csv", name, destination=destination, unique_key="id", spark=spark)
        except TallymarkError as error:
            assert isinstance(error, MEANT), error
            return
        connection = sqlite3.connect(folder / "shop.db")
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        connection.close()
        assert name in tables or name.replace(".", "__") in tables, tables


@pytest.mark.slow
@given(name=PIECES.map("".join).filter(lambda name: "/" not in name))
@AT_MOST
def test_folders_of_delta_tables(spark: SparkSession, name: str) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "a.csv").write_text("id,v\n1,x\n")
        target = f"{folder}/lake/{name}"
        try:
            tm.merge(folder / "a.csv", target, unique_key="id", provenance=False, spark=spark)
        except TallymarkError as error:
            assert isinstance(error, MEANT), error
            return
        assert rows_of(target) == [{"id": 1, "v": "x"}] or rows_of(target) == [{"id": "1", "v": "x"}]
