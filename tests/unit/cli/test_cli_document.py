"""The JSON document: what docs/reference/json.md promises is what comes out."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tallymark.cli.blocks import Answer
from tallymark.cli.document import document, plain
from tallymark.cli.main import main
from tallymark.model.report import RunReport

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "json.md"
EXAMPLES = dict(re.findall(r"```json ([\w-]+)\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL))
COMMANDS = {
    "run": ["run"],
    "plan": ["plan"],
    "preview": ["preview", "gold.revenue"],
    "status": ["status"],
    "history": ["history"],
    "requeue": ["requeue", "silver.orders"],
    "quarantine-list": ["quarantine", "list"],
    "quarantine-show": ["quarantine", "show", "silver.orders"],
    "quarantine-drop": ["quarantine", "drop", "silver.orders", "b-1"],
    "config": ["config", "gold.revenue"],
    "graph": ["graph"],
    "graph-mermaid": ["graph", "--mermaid"],
    "graph-columns": ["graph", "--columns", "gold.revenue"],
    "doctor": ["doctor"],
    "prepare": ["prepare"],
    "init": ["init"],
    "version": ["--version"],
}


def shape(value: Any, documented: Any) -> Any:
    """Names and nesting, without values. An empty object in the reference stands for one described above."""
    if isinstance(value, dict) and isinstance(documented, dict):
        if not documented:
            return {}
        return {key: shape(item, documented.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(documented, list):
        return [shape(value[0], documented[0])] if value and documented else []
    return None


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_shows_every_field(name: str, library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main([*COMMANDS[name], "--json"])
    result = json.loads(capsys.readouterr().out)["result"]
    documented = json.loads(EXAMPLES[name])
    assert shape(result, documented) == shape(documented, documented)


def test_every_example_of_the_reference_is_checked(
    library: Any, failed_run: RunReport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(EXAMPLES) == {*COMMANDS, "error"}
    library.answers["run"] = failed_run
    main(["run", "--json"])
    assert json.loads(capsys.readouterr().out)["error"] == json.loads(EXAMPLES["error"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("12.50"), "12.50"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (date(2026, 11, 1), "2026-11-01"),
        (datetime(2026, 11, 1, 12, tzinfo=UTC), "2026-11-01T12:00:00+00:00"),
        (b"\x00\xff", "00ff"),
        (bytearray(b"\x01"), "01"),
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
        ({3: "numbers as keys"}, {"3": "numbers as keys"}),
        (2**63, 2**63),
    ],
)
def test_values_of_rows(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_a_file_name_that_is_not_utf8_is_still_json() -> None:
    name = b"landing/\xff.csv".decode(errors="surrogateescape")
    text = document(Answer(result=name), "run", "0.1.0")
    assert json.loads(text.encode("utf-8"))["result"] == name
