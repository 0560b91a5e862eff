"""The published schemas agree with the loader, and the published reference is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from tallymark.config.keys import keys_of, schemas, with_tables, write_reference
from tallymark.config.pipeline_file import PipelineConfig
from tallymark.config.project_file import ProjectConfig
from tallymark.model.settings import Strategy

REFERENCE = Path(__file__).parents[3] / "docs/reference"

PROJECT = """
name: shop
ledger: sqlite:///.tallymark/ledger.db
spark: {master: "local[*]", conf: {spark.driver.memory: 4g, a: 1, b: true}}
destinations:
  lake: {type: delta, path: warehouse, properties: {delta.enableChangeDataFeed: true}}
  other: {catalog: spark_catalog}
  pg: {type: postgres, url: "postgresql://…"}
defaults: {destination: lake, strict: false}
"""
PIPELINE = """
description: Orders as the shop exports them
source: {files: landing/orders/*.csv, format: csv, options: {header: true}, order: name}
columns:
  - {name: order_id, type: bigint, required: true}
  - {from: Amt, name: amount, type: "decimal(12,2)"}
destination: lake
table: silver.orders
merge_strategy: incremental
unique_key: [order_id]
dedup_order_by: a, b
watermark_column: updated_at
cdc: {operation_column: op, sequence_by: lsn, operations: {insert: [I], update: [U], delete: [D]}}
batch: {max_files: 500, max_bytes: 4GiB}
quarantine: {max_fraction: 0.01, max_rows: 1000}
guards: {max_delete_fraction: 0.5}
retry: {max_attempts: 3}
"""


def errors(schema: str, text: str) -> list[str]:
    data = YAML(typ="safe", pure=True).load(text)
    return [error.json_path for error in Draft202012Validator(schemas()[schema]).iter_errors(data)]


def test_the_schemas_are_schemas() -> None:
    assert list(schemas()) == ["tallymark.schema.json", "pipeline.schema.json"]
    for name, schema in schemas().items():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"].endswith(name)
        assert schema["title"] in {"tallymark.yaml", "config.yaml"}
        assert schema["description"]


def test_good_files_pass() -> None:
    assert errors("tallymark.schema.json", "{}") == []
    assert errors("tallymark.schema.json", PROJECT) == []
    assert errors("pipeline.schema.json", PIPELINE) == []
    assert errors("pipeline.schema.json", "{}") == []  # beside a pipeline.sql
    assert errors("pipeline.schema.json", "{materialized: view, vars: {n: 3, day: x}}") == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("source: {files: x, formt: csv}", "$.source"),
        ("source: {files: x, format: cvs}", "$.source"),
        ("{source: {files: x}, merge_stratgy: upsert}", "$"),
        ("{source: {files: x}, merge_strategy: upsrt}", "$.merge_strategy"),
        ("{source: {files: x}, unique_key: 5}", "$.unique_key"),
        ("{source: {files: x}, columns: [{source: a, name: b}]}", "$.columns[0]"),
        ("{source: {files: x}, batch: {max_files: 0}}", "$.batch.max_files"),
        ("{source: {files: x}, cdc: {operation_column: o, operations: {upd: [U]}}}", "$.cdc"),
    ],
)
def test_bad_pipelines_fail(text: str, where: str) -> None:
    assert where in errors("pipeline.schema.json", text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("parallel: 0", "$.parallel"),
        ("parralel: 1", "$"),
        ("destinations: {lake: {type: dleta}}", "$.destinations.lake"),
        ("destinations: {lake: {pth: x}}", "$.destinations.lake"),
    ],
)
def test_bad_projects_fail(text: str, where: str) -> None:
    assert where in errors("tallymark.schema.json", text)


def test_every_strategy_is_offered() -> None:
    definitions = schemas()["pipeline.schema.json"]["$defs"]
    assert definitions["Strategy"]["enum"] == [strategy.value for strategy in Strategy]


@pytest.mark.parametrize("model", [ProjectConfig, PipelineConfig])
def test_every_key_is_described(model: type[ProjectConfig] | type[PipelineConfig]) -> None:
    undescribed = [key.path for key in keys_of(model) if not key.description and key.path[-1] != "type"]
    assert undescribed == []


def test_the_published_reference_is_fresh(tmp_path: Path) -> None:
    """When this fails: python -c "from pathlib import Path; from tallymark.config.keys import
    write_reference; write_reference(Path('docs/reference'))" """
    page = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    (tmp_path / "configuration.md").write_text(page, encoding="utf-8")
    for fresh in write_reference(tmp_path):
        published = REFERENCE / fresh.name
        assert published.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), published.name


def test_the_tables_replace_only_what_is_between_the_marks() -> None:
    page = "a\n<!-- begin keys of tallymark.yaml -->\nstale rows\n<!-- end keys of tallymark.yaml -->\nb\n"
    page += "<!-- begin keys of config.yaml -->\n<!-- end keys of config.yaml -->\nc\n"
    fresh = with_tables(page)
    assert fresh.startswith("a\n<!-- begin")
    assert "stale rows" not in fresh
    assert "| `parallel` | a whole number | `2` | How many pipelines run at the same time |" in fresh
    assert "| `columns[].name` | text | required | Its name in the table |" in fresh
    assert (
        "| `destinations.<name>.type` | delta or iceberg or sqlite or duckdb or postgres | `delta` |" in fresh
    )
    assert fresh.endswith("-->\nc\n")
    assert with_tables(fresh) == fresh
