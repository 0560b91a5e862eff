"""Which column is made of which, as far as the queries tell. Starts no Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallymark.config.load_project import load_project
from tallymark.flow.inspect.graph import build_graph
from tallymark.flow.inspect.lineage import trace_columns
from tallymark.model.graph import ColumnSource, InputKind, PipelineLineage

ORDERS = "SELECT 1 AS id, 2 AS amount, DATE '2026-11-01' AS Day"
Trace = Callable[..., PipelineLineage]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Of a pipeline that may read `orders`, whose columns are known, and `files`, whose are not."""

    def lineage(sql: str, orders: str = ORDERS, file: str = "pipeline.sql") -> PipelineLineage:
        texts = {
            "tallymark.yaml": "",
            "pipelines/orders/pipeline.sql": orders,
            "pipelines/files/config.yaml": "source: {files: landing/x/*.csv}",
            f"pipelines/traced/{file}": sql,
        }
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        project = load_project(tmp_path, {})
        return trace_columns(project, build_graph(project))["traced"]

    return lineage


def shown(source: ColumnSource) -> str:
    return f"{source.name or '?'}.{source.column}"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT day, sum(amount) AS Total, count(*) AS n, 5 AS five FROM {{ ref('orders') }} GROUP BY day",
            {"day": ["orders.Day"], "Total": ["orders.amount"], "n": [], "five": []},
        ),
        (
            "SELECT * FROM {{ ref('orders') }}",
            {"id": ["orders.id"], "amount": ["orders.amount"], "Day": ["orders.Day"]},
        ),
        ("SELECT * FROM {{ ref('files') }}", {"*": ["files.*"]}),
        ("SELECT f.* FROM {{ ref('files') }} f JOIN {{ landing_zone('z') }} z", {"*": ["files.*"]}),
        ("SELECT * FROM {{ ref('files') }} f JOIN {{ landing_zone('z') }} z", {"*": ["files.*", "z.*"]}),
        ("SELECT * FROM (SELECT * FROM {{ landing_zone('a/b') }})", {"*": ["a/b.*"]}),
        (
            "SELECT Name, `odd name` AS o FROM {{ ref('files') }}",
            {"Name": ["files.name"], "o": ["files.odd name"]},
        ),
        (
            "SELECT o.id, f.name, other FROM {{ ref('orders') }} o JOIN {{ ref('files') }} f ON o.id = f.id",
            {"id": ["orders.id"], "name": ["files.name"], "other": ["?.other"]},
        ),
        (
            "WITH a AS (SELECT id, amount * 2 AS twice FROM {{ ref('orders') }}), b AS (SELECT * FROM a) "
            "SELECT b.twice + b.id AS q FROM b UNION ALL SELECT v FROM {{ ref('files') }}",
            {"q": ["orders.amount", "orders.id", "files.v"]},
        ),
        (
            "SELECT x.k, (SELECT max(amount) FROM {{ ref('orders') }} o WHERE o.id = x.k) AS m "
            "FROM {{ ref('files') }} x",
            {"k": ["files.k"], "m": ["orders.amount"]},
        ),
        (
            "SELECT id, row_number() OVER (PARTITION BY id ORDER BY day) AS rn FROM {{ ref('orders') }}",
            {"id": ["orders.id"], "rn": ["orders.Day", "orders.id"]},
        ),
        (
            "SELECT id{% if is_incremental() %}, amount{% endif %} FROM {{ ref('orders') }}",
            {"id": ["orders.id"]},
        ),
    ],
)
def test_columns(trace: Trace, sql: str, expected: dict[str, list[str]]) -> None:
    found = trace(sql)
    assert found.unknown == ""
    assert {c.column: sorted(map(shown, c.sources)) for c in found.columns} == {
        name: sorted(sources) for name, sources in expected.items()
    }


def test_kinds_of_inputs(trace: Trace) -> None:
    sql = "SELECT o.id, z.a, b FROM {{ ref('files') }} o JOIN {{ landing_zone('z') }} z"
    kinds = [source.kind for column in trace(sql).columns for source in column.sources]
    assert kinds == [InputKind.PIPELINE, InputKind.LANDING_ZONE, InputKind.UNKNOWN]


def test_a_history_has_its_columns_too(trace: Trace) -> None:
    orders = f"-- @merge_strategy: scd2\n-- @unique_key: id\n-- @scd_valid_to: until\n{ORDERS}"
    names = [column.column for column in trace("SELECT * FROM {{ ref('orders') }}", orders).columns]
    assert names == ["id", "amount", "Day", "valid_from", "until"]


def test_what_cannot_be_told_is_told(trace: Trace) -> None:
    assert trace("SELECT {{ var('x') }} AS a").unknown.endswith(
        "there is no variable x; set it under vars, or write var('x', default)"
    )
    hard = trace("SELECT k, e FROM {{ ref('files') }} LATERAL VIEW explode(items) t AS e")
    assert hard.unknown or {c.column for c in hard.columns} == {"k", "e"}
    assert trace("VALUES (1, 2)").unknown.startswith("the query could not be analyzed")


def test_python_has_no_lineage(trace: Trace, tmp_path: Path) -> None:
    trace("SELECT 1")
    (tmp_path / "pipelines/traced/pipeline.sql").unlink()
    assert trace("result = ref('orders')", file="pipeline.py").unknown == "its columns come from Python"
