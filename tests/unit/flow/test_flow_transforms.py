"""A project with transforms as the library sees it, before they can be loaded. Starts no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import tallymark as tm
from tallymark import api
from tallymark.errors import ConfigError
from tallymark.model.report import Outcome

REVENUE = "pipelines/gold/revenue/pipeline.sql"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    texts = {
        "tallymark.yaml": "vars: {top: 3}\n",
        "pipelines/silver/orders/config.yaml": "source: {files: landing/orders/*.csv}\n",
        REVENUE: "-- @merge_strategy: append_only\nSELECT day FROM {{ ref('silver.orders') }}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_run_and_plan_refuse_a_transform_in_one_clear_error(root: Path) -> None:
    with tm.Project(root) as project:
        (ran,) = project.run("gold.revenue").pipelines
        (planned,) = project.plan("gold.revenue")
    assert ran.outcome is Outcome.FAILED
    for failure in (*ran.failures, planned.failure):
        assert failure is not None
        assert failure.code == "TM404"
        assert failure.message == "gold.revenue is a transform, and this version loads only files"


def test_settings_graph_and_lineage(root: Path) -> None:
    with tm.Project(root) as project:
        settings = {setting.key: setting for setting in project.settings("gold.revenue")}
        assert settings["merge_strategy"].place == f"{REVENUE}:1"
        assert settings["vars.top"].place == "tallymark.yaml:1"
        assert [node.pipeline for node in project.graph("silver.orders+")] == [
            "silver.orders",
            "gold.revenue",
        ]
        assert [traced.pipeline for traced in project.lineage("gold.revenue")] == ["gold.revenue"]
        with pytest.raises(ConfigError, match="names 2 pipelines"):
            project.settings("*")
        with pytest.raises(ConfigError, match=r"there is no pipeline gold\.revenu"):
            project.settings("gold.revenu")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 1 FROM {{ ref('silver.ordrs') }}", "there is no pipeline silver.ordrs"),
        ("SELECT {{ nope }}", "there is no nope in templates"),
        ("SELECT 1 {% if %}", "expected an expression, got 'end of statement block'"),
    ],
)
def test_wrong_templates_are_found_before_anything_runs(root: Path, sql: str, problem: str) -> None:
    (root / REVENUE).write_text(sql)
    with pytest.raises(ConfigError, match=problem):
        tm.Project(root)
    (finding,) = api.validate(root)
    assert (finding.ok, finding.subject, finding.detail) == (False, f"{REVENUE}:1", problem)
