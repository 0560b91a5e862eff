"""The `quality` section of a pipeline, and the tests below tests/quality."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tallymark.config.quality_section import QualityConfig, parse_age
from tallymark.model.gate import Severity
from unit.config.project_folder import Folder

ORDERS = "pipelines/silver/orders/config.yaml"
SOURCE = "source: {files: landing/*.csv}\n"
TEST = "tests/quality/orders/positive.sql"


def quality_of(folder: Folder, text: str) -> QualityConfig:
    folder.write({ORDERS: SOURCE + text})
    quality: QualityConfig = folder.load().pipelines["silver.orders"].config.quality
    return quality


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("id", [["id"]]),
        ("'id, line'", [["id", "line"]]),
        ("[id, line]", [["id", "line"]]),
        ("[[id, line], [sku]]", [["id", "line"], ["sku"]]),
        ("['id, line', [sku]]", [["id", "line"], ["sku"]]),
    ],
)
def test_keys_are_written_in_several_ways(folder: Folder, written: str, keys: list[list[str]]) -> None:
    assert quality_of(folder, f"quality: {{unique_keys: {written}}}\n").unique_keys == keys


def test_rules_that_only_warn_are_named_by_kind_or_one_by_one(folder: Folder) -> None:
    quality = quality_of(
        folder,
        "quality: {min_rows: 1, required_non_null: [a, b], unique_keys: [a, b], warn: [min_rows, "
        "required_non_null.B, unique_keys.a+b]}\n",
    )
    assert quality.only_warns("min_rows") and quality.only_warns("unique_keys", "a+b")
    assert quality.only_warns("required_non_null", "b") and not quality.only_warns("required_non_null", "a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("quality: {min_row: 1}", "2: quality.min_row: unknown key; did you mean min_rows?"),
        ("quality: {min_rows: -1}", "2: quality.min_rows: must be at least 0, found -1"),
        ("quality: {min_rows: true}", "2: quality.min_rows: expected a whole number, found true"),
        ("quality: {numeric_ranges: {a: {}}}", "2: quality.numeric_ranges.a: expected min, max or both"),
        (
            "quality: {numeric_ranges: {a: {min: 2, max: 1}}}",
            "2: quality.numeric_ranges.a: min 2 is more than",
        ),
        ("quality: {accepted_values: {a: []}}", "2: quality.accepted_values: a has no values"),
        ("quality: {freshness: {column: at}}", "2: quality.freshness.max_age: missing"),
        (
            "quality: {freshness: {column: at, max_age: 2 years}}",
            "2: quality.freshness.max_age: expected an age",
        ),
        ("quality: {unique_keys: [[a, a]]}", "2: quality.unique_keys[0]: names a twice"),
        (
            "quality: {min_rows: 1, warn: [min_row]}",
            "2: quality: warn names min_row, which is not a rule of this",
        ),
        (
            "quality: {required_non_null: [a], warn: [required_non_null.b]}",
            "did you mean required_non_null.a?",
        ),
    ],
)
def test_mistakes_are_told_with_their_key(orders: Callable[..., list[str]], text: str, problem: str) -> None:
    (found,) = orders(SOURCE + text + "\n")
    assert problem in found


def test_ages() -> None:
    assert [parse_age(text) for text in ("45s", "90m", "36h", "2d", "1w")] == [
        timedelta(seconds=45),
        timedelta(minutes=90),
        timedelta(hours=36),
        timedelta(days=2),
        timedelta(weeks=1),
    ]


def test_a_view_has_no_load_to_check(folder: Folder) -> None:
    view = "-- @materialized: view\n-- @quality.min_rows: 1\nSELECT 1 AS x\n"
    folder.write({"pipelines/gold/v/pipeline.sql": view})
    assert "quality: a view keeps no rows" in folder.problems()[0]


def test_a_quality_test_says_whose_it_is(folder: Folder) -> None:
    head = "-- @pipeline: silver.orders\n-- @severity: warn\n-- @description: 'no: refunds'\n"
    folder.write({ORDERS: SOURCE, TEST: head + "SELECT * FROM {{ this }}\n", "tests/quality/notes.md": "x"})
    (test,) = folder.load().quality_tests
    assert (test.file, test.pipeline, test.severity) == (TEST, "silver.orders", Severity.WARN)
    assert test.description == "no: refunds"


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("", f"{TEST}:1: pipeline: missing; it is required"),
        (
            "-- @pipeline: silver.order\n",
            f"{TEST}:1: pipeline: there is no pipeline silver.order; did you mean",
        ),
        ("-- x\n-- @pipelin: silver.orders\n", f"{TEST}:2: pipelin: unknown key; did you mean pipeline?"),
        (
            "-- @pipeline: silver.orders\n-- @severity: fatal\n",
            f"{TEST}:2: severity: fatal is not one of error",
        ),
        (
            "-- @pipeline: silver.orders\n-- @unique_key: a\n",
            f"{TEST}:2: unique_key: unknown key; it belongs in",
        ),
        (
            "-- @pipeline: silver.orders\nSELECT 1 -- @severity: warn\n",
            f"{TEST}:2: severity: a setting below",
        ),
    ],
)
def test_wrong_heads_are_told_with_file_and_line(folder: Folder, head: str, problem: str) -> None:
    folder.write({ORDERS: SOURCE, TEST: head + "SELECT * FROM {{ this }}\n"})
    assert any(line.startswith(problem) for line in folder.problems()), folder.problems()
