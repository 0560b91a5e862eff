"""The JSON document: what docs/reference/json.md promises is what comes out."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tallymark.cli.main import main
from tallymark.model.documents import RESULTS, as_text, document, json_value, schema, schema_of
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


VARIANTS = {
    **COMMANDS,
    "recover": ["recover"],
    "quarantine-replay": ["quarantine", "replay", "silver.orders"],
    "quarantine-export": ["quarantine", "show", "silver.orders", "--export", "rows.csv"],
    "validate": ["validate"],
    "schema": ["schema"],
    "schema-write": ["schema", "--write", "schemas"],
}


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
    assert json_value(value) == expected


def test_a_file_name_that_is_not_utf8_is_still_json() -> None:
    name = b"landing/\xff.csv".decode(errors="surrogateescape")
    text = as_text(document("run", name, ok=True, version="0.1.0"))
    assert json.loads(text.encode("utf-8"))["result"] == name


def strict(shape: Any) -> Any:
    """The same schema, with no room for fields that it does not name."""
    match shape:
        case {"type": "object", "properties": dict()}:
            closed = {**shape, "additionalProperties": False}
            return {key: strict(item) for key, item in closed.items()}
        case dict():
            return {key: strict(item) for key, item in shape.items()}
        case list():
            return [strict(item) for item in shape]
        case _:
            return shape


FORMATS = jsonschema.FormatChecker([])


@FORMATS.checks("date-time", raises=ValueError)
def is_moment(text: object) -> bool:
    return not isinstance(text, str) or datetime.fromisoformat(text).tzinfo is not None


PUBLISHED = json.loads((REFERENCE.parent / "documents.schema.json").read_text())


def test_the_published_schema_is_up_to_date() -> None:
    """If not, `make docs` writes it."""
    assert schema() == PUBLISHED


def test_every_command_has_a_schema_that_is_one() -> None:
    spoken = {" ".join(words[:2] if words[0] == "quarantine" else words[:1]) for words in VARIANTS.values()}
    assert spoken == {*RESULTS} - {"version"} | {"--version"}
    for name in RESULTS:
        jsonschema.Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize("name", VARIANTS)
def test_documents_fit_their_schema(name: str, library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main([*VARIANTS[name], "--json"])
    content = json.loads(capsys.readouterr().out)
    validator = jsonschema.Draft202012Validator(
        strict(schema_of(content["command"] or "version")), format_checker=FORMATS
    )
    validator.validate(content)
    jsonschema.validate(content, PUBLISHED)


@pytest.mark.parametrize("name", VARIANTS)
def test_errors_fit_the_schema_of_every_command(
    name: str, library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*VARIANTS[name], "--bogus", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content["error"]["code"] == "TM101"
    jsonschema.validate(content, PUBLISHED)
    if content["command"] is not None:
        jsonschema.validate(content, strict(schema_of(content["command"])))


def test_a_schema_tells_documents_apart(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--json"])
    content = json.loads(capsys.readouterr().out)
    del content["result"]["pipelines"][0]["counts"]["closed"]
    with pytest.raises(jsonschema.ValidationError, match="closed"):
        jsonschema.validate(content, schema_of("run"))
