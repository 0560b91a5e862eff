"""Texts and names in Spark SQL come out as they went in, whatever the session makes of literals."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tallymark.model.types import literal, quoted

TEXTS = [
    "",
    "plain",
    "it's",
    "a''b",
    '"double"',
    "back\\slash",
    "\\",
    "\\'",
    r"^\d{4}-(\s*[A-Za-z+-].*)?$",
    "tab\tline\nend\r",
    "ünïcödé 😀 \ufffd \u2028",
    "${env:HOME}",
    "${spark.app.name}",
    "%_*`",
]


@pytest.mark.parametrize("escaped", ["true", "false"])
def test_literals(spark: SparkSession, escaped: str) -> None:
    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    row = (
        spark.range(1).selectExpr(*(f"{literal(text)} AS c{n}" for n, text in enumerate(TEXTS))).collect()[0]
    )
    assert list(row) == TEXTS


def test_names(spark: SparkSession) -> None:
    names = [text.replace("$", "") for text in TEXTS if text]
    frame = spark.range(1).selectExpr(*(f"id AS {quoted(name)}" for name in names))
    assert frame.columns == names
    assert list(frame.selectExpr(*map(quoted, names)).collect()[0]) == [0] * len(names)
