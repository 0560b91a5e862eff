"""Every example of docs/reference/templates.md and annotations.md is true."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tallymark.config.load_project import load_project
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy
from tallymark.templates import Context, Template, TypedValue, references, render
from tallymark.templates.context import NAMES
from tallymark.templates.sandbox import FILTERS

REFERENCE = Path(__file__).parents[3] / "docs/reference"
PAGE = (REFERENCE / "templates.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"^```jinja ?(\w*)\n(.*?)^```\n```(sql|text)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
)
FILE = "pipelines/gold/revenue/pipeline.sql"

CASES: dict[str, dict[str, Any]] = {
    "": {},
    "later": {"table_exists": True, "watermark": TypedValue(datetime(2026, 10, 31, tzinfo=UTC), "timestamp")},
    "snapshot": {"strategy": Strategy.SNAPSHOT},
}


def outcome(template: str, case: str) -> str:
    usual: dict[str, Any] = {
        "strategy": Strategy.INCREMENTAL,
        "watermark_column": "updated_at",
        "run_started_at": datetime(2026, 11, 1, 12, tzinfo=UTC),
        "refs": lambda name: f"`{name}`",
        "zones": lambda name: f"`landing {name}`",
        "this": "`gold.revenue`",
        "variables": {"country": "Côte d'Ivoire", "top": 10, "since": date(2026, 1, 1)},
    }
    made = Template(FILE, template)
    try:
        references(made)
        return render(made, Context(**(usual | CASES[case]))).sql
    except ConfigError as error:
        return error.message


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("case", "template", "kind", "expected"), EXAMPLES)
def test_examples_of_templates(case: str, template: str, kind: str, expected: str) -> None:
    found = outcome(template, case)
    assert lines(found) == lines(expected)
    assert (FILE in found) == (kind == "text")


def test_no_example_is_left_out() -> None:
    assert len(EXAMPLES) == PAGE.count("\n```jinja")


def test_every_name_and_filter_is_described() -> None:
    told = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE))
    assert NAMES - told == set()
    assert set(FILTERS) - {"d"} - told == set()


@pytest.mark.parametrize(("language", "file"), [("sql", "pipeline.sql"), ("python", "pipeline.py")])
def test_examples_of_annotations(tmp_path: Path, language: str, file: str) -> None:
    page = (REFERENCE / "annotations.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    folder = tmp_path / "pipelines/gold/revenue"
    folder.mkdir(parents=True)
    (tmp_path / "tallymark.yaml").touch()
    (folder / file).write_text(text)
    pipeline = load_project(tmp_path, {}).pipelines["gold.revenue"]
    if language == "sql":
        assert pipeline.settings.unique_key == ("day", "country")
        assert pipeline.settings.max_delete_fraction == 0.3
        assert pipeline.variables == {"top": 10, "since": date(2026, 1, 1)}
        assert pipeline.config.description == "Revenue: by day"
    else:
        assert pipeline.settings.strategy is Strategy.APPEND_ONLY
        assert pipeline.config.columns[0].required
