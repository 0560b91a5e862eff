"""Every example of docs/reference/quality.md is true: the rules run on the rows that the page shows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from pyspark.sql import SparkSession
from ruamel.yaml import YAML
from sqlglot import exp

from tallymark.checks.quality_gates import Quality, rule_gates
from tallymark.config.quality_section import QualityConfig
from tallymark.destinations.contract import SparkRows
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.destinations.warehouse.destination import WarehouseDestination
from tallymark.model.gate import AFTER, Gate, GateResult, QueryCheck, Severity
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column
from tallymark.spark.frames import local_frame
from tallymark.strategies.build import build_plan
from tallymark.templates import Template, render_quality_test

PAGE = (Path(__file__).parents[2] / "docs/reference/quality.md").read_text(encoding="utf-8")
RULES = re.findall(r"^```yaml rule\n(.*?)^```\n```text found\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
(TEST,) = re.findall(r"^```sql test\n(.*?)^```\n```text found\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
(ROWS,) = re.findall(r"^```text rows\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
COLUMNS = (
    Column("order_id", "bigint"),
    Column("status", "string"),
    Column("amount", "decimal(12,2)"),
    Column("updated_at", "timestamp"),
)


def rows_of_the_page() -> list[tuple[object, ...]]:
    cells = [[cell.strip() for cell in line.split("|")] for line in ROWS.strip().splitlines()[1:]]
    return [tuple(None if cell == "NULL" else cell for cell in row) for row in cells]


def found(spark: SparkSession, folder: Path, gates_of: Any) -> tuple[GateResult, ...]:
    plan = build_plan("silver.orders", MergeSettings(Strategy.APPEND_ONLY), COLUMNS, None, as_of=NOON)
    texts = ", ".join(f"{column.name} string" for column in COLUMNS)
    frame = local_frame(spark, rows_of_the_page(), texts)
    typed = [f"CAST({column.name} AS {column.type}) AS {column.name}" for column in COLUMNS]
    destination = WarehouseDestination(SqliteEngine(str(folder / "shop.db")))
    incoming = frame.selectExpr(
        *typed, f"0 AS {FILE_ORDER}", f"0L AS {ROW_BLOCK}", f"monotonically_increasing_id() AS {ROW_ORDER}"
    )
    with destination.table(plan.table).prepare(plan, SparkRows(incoming), for_commit=False) as prepared:
        return prepared.check(gates_of(plan))


def agrees(result: GateResult, line: str) -> bool:
    """The page shows the first words of each sample."""
    return str(result) == line or str(result).replace(":00.000000+00:00", "").startswith(line)


@pytest.mark.parametrize(("rule", "expected"), RULES)
def test_examples_of_rules(spark: SparkSession, tmp_path: Path, rule: str, expected: str) -> None:
    quality = Quality(QualityConfig.model_validate(YAML(typ="safe").load(rule)))
    results = found(spark, tmp_path, lambda plan: rule_gates(quality, plan))
    lines = expected.strip().splitlines()
    assert len(results) == len(lines)
    assert [str(r) for r, line in zip(results, lines, strict=True) if not agrees(r, line)] == []


def test_the_example_of_a_test(spark: SparkSession, tmp_path: Path) -> None:
    text, expected = TEST
    file = "tests/quality/paid.sql"
    sql = render_quality_test(Template(file, text), this=f"`{AFTER}`", run_started_at=NOON, variables={}).sql
    query = sqlglot.parse_one(sql, dialect="spark")
    assert isinstance(query, exp.Query)
    told = re.findall(r"@description: (.*)", text)[0]
    gate = Gate(file, Severity.WARN, QueryCheck(query, sql), told)
    (result,) = found(spark, tmp_path, lambda plan: [gate])
    assert agrees(result, expected.strip())


def test_every_rule_has_its_example() -> None:
    shown = {line.split(":")[0] for rule, _ in RULES for line in rule.splitlines()}
    assert shown == set(QualityConfig.model_fields) - {"warn"}


def test_the_whole_section_is_right() -> None:
    (section,) = re.findall(r"^```yaml\n(quality:.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    QualityConfig.model_validate(YAML(typ="safe").load(section)["quality"])
