"""Quality gates in a project: what fails a load, what only warns, and what is kept of it."""

from __future__ import annotations

import pytest

from tallymark.config.load_project import load_project
from tallymark.flow.inspect.findings import validate
from tallymark.model.report import Outcome
from unit.flow.shop import ORDERS, DatabaseShop, Shop, csv

POSITIVE = "-- @pipeline: silver.orders\nSELECT order_id, amount FROM {{ this }} WHERE amount < {{ var('least', 0) }}\n"


def with_test(shop: Shop, text: str, name: str = "positive.sql") -> None:
    folder = shop.root / "tests/quality"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_broken_rule_fails_the_batch_and_repaired_data_loads(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS + "quality: {required_non_null: [status], min_rows: 1}\n")
    with_test(store, POSITIVE)
    store.drop("orders/1.csv", csv("1,new,1.00"))
    assert [result.passed for result in store.load().receipts[0].quality] == [True, True, True]
    store.drop("orders/2.csv", csv("2,,-2.00", "1,paid,1.00"))
    report = store.run()
    (failure,) = report.failures
    assert (report.outcome, failure.code) == (Outcome.FAILED, "TM302")
    assert "required_non_null.status: 1 row, such as order_id=2" in failure.message
    assert "tests/quality/positive.sql: 1 row" in failure.message
    assert store.rows() == [(1, "new")]
    with store.open() as project:
        (status,) = project.status()
    assert [result.rule for result in status.quality if result.stops] == [
        "required_non_null.status",
        "tests/quality/positive.sql",
    ]
    assert status.quality[1].samples[0]["order_id"] == 2
    assert status.failed_files[0].attempts == 1
    store.drop("orders/2.csv", csv("2,new,2.00", "1,paid,1.00"))
    assert store.load().receipts[0].counts.inserted == 1
    with store.open() as project:
        (status,) = project.status()
    assert all(result.passed for result in status.quality) and len(status.quality) == 3


def test_a_rule_that_warns_is_told_and_kept(store: DatabaseShop) -> None:
    store.pipeline(
        "silver.orders", ORDERS + "quality: {accepted_values: {status: [new]}, warn: accepted_values}\n"
    )
    store.drop("orders/1.csv", csv("1,lost,1.00"))
    planned = store.plan("silver.orders")
    report = store.load()
    assert "accepted_values.status: 1 row" in report.warnings[0]
    assert report.receipts[0].warnings == report.warnings == planned.warnings
    with store.open() as project:
        (status,) = project.status()
        (record,) = project.history()
    assert record.receipt and status.quality == record.receipt.quality
    assert (status.quality[0].passed, status.quality[0].rows, status.quality[0].stops) == (False, 1, False)


def test_the_plan_says_what_the_rules_would(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS + "quality: {min_rows: 2}\n")
    store.drop("orders/1.csv", csv("1,new,1.00"))
    (result,) = store.plan("silver.orders").quality
    assert result.stops and result.samples == ({"row_count": 1},)
    assert store.run().outcome is Outcome.FAILED


def test_an_unknown_column_names_the_rule_and_its_line(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS + "quality:\n  numeric_ranges: {amuont: {min: 0}}\n")
    store.drop("orders/1.csv", csv("1,new,1.00"))
    (failure,) = store.run().failures
    line = (ORDERS + "quality:\n").count("\n") + 1
    place = f"pipelines/silver/orders/config.yaml:{line}: quality.numeric_ranges.amuont"
    assert f"{place}: the table has no column amuont; did you mean amount?" in failure.message
    assert not store.has("silver.orders")


def test_gates_on_delta(shop: Shop) -> None:
    shop.pipeline(
        "silver.orders", ORDERS + "quality: {unique_keys: order_id, numeric_ranges: {amount: {max: 5}}}\n"
    )
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    assert all(result.passed for result in shop.load().receipts[0].quality)
    shop.drop("orders/2.csv", csv("1,new,9.00"))
    (failure,) = shop.run().failures
    assert failure.code == "TM302" and "amount=9.00" in failure.message
    assert (shop.rows(), shop.version(), len(shop.markers())) == ([(1, "new")], 0, 1)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM {{ ref('silver.orders') }}", "3: ref is not allowed in quality tests"),
        ("SELECT * FROM silver.orders", "3: silver.orders is not read by ref or landing_zone"),
        ("SELECT * FROM {{ this }} WHERE {{ var('missing') }}", "3: there is no variable missing"),
        ("DELETE FROM {{ this }}", "3: is not a query"),
        ("SELECT * FROM {{ this }} WHERE (", "SQL: "),
    ],
)
def test_validate_finds_wrong_tests(store: DatabaseShop, query: str, problem: str) -> None:
    store.pipeline("silver.orders", ORDERS)
    with_test(store, f"-- @pipeline: silver.orders\n\n{query}\n")
    (finding,) = [found for found in validate(store.root) if not found.ok]
    assert f"{finding.subject}: {finding.detail}".startswith("tests/quality/positive.sql")
    assert problem in f"{finding.subject.rpartition(':')[2]}: {finding.detail}"


def test_validate_lists_tests(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS)
    with_test(store, POSITIVE)
    assert [found.subject for found in validate(store.root) if found.ok][-1] == "tests/quality/positive.sql"
    assert load_project(store.root).quality_tests[0].pipeline == "silver.orders"
