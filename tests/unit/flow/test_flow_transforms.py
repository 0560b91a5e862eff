"""Pipelines whose rows come from a query: once for each state of their inputs, whatever dies when."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tallymark.destinations.lakehouse.commit import LakehouseLoad
from tallymark.ledger.ledger import Ledger
from tallymark.model.batch import Watermark
from tallymark.model.report import DeferredInput, Outcome, PipelineReport
from unit.flow.shop import ORDERS, DatabaseShop, Killed, Shop, csv, dies

REVENUE = """-- @merge_strategy: full_refresh
SELECT status, sum(amount) AS amount, count(*) AS orders FROM {{ ref('silver.orders') }} GROUP BY status
"""


@pytest.fixture
def shop(store: DatabaseShop) -> DatabaseShop:
    store.pipeline("silver.orders", ORDERS)
    return store


def transform(shop: Shop, name: str, text: str, file: str = "pipeline.sql") -> None:
    folder = shop.root / "pipelines" / name.replace(".", "/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)


def run_all(shop: DatabaseShop) -> dict[str, PipelineReport]:
    with shop.open() as project:
        return {report.pipeline: report for report in project.run().pipelines}


def revenue(shop: DatabaseShop) -> list[tuple[Any, ...]]:
    return shop.rows("gold.revenue", "status", "orders")


def test_a_query_runs_after_its_input_and_once_for_each_state_of_it(shop: DatabaseShop) -> None:
    transform(shop, "gold.revenue", REVENUE)
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,paid,2.00"))
    first = run_all(shop)
    assert [report.outcome for report in first.values()] == [Outcome.LOADED] * 2, first[
        "gold.revenue"
    ].failures
    assert revenue(shop) == [("new", 1), ("paid", 1)]
    second = run_all(shop)
    assert [report.outcome for report in second.values()] == [Outcome.NOTHING_NEW] * 2
    shop.drop("orders/2.csv", csv("1,paid,1.00"))
    assert run_all(shop)["gold.revenue"].outcome is Outcome.LOADED
    assert revenue(shop) == [("paid", 2)]


def test_changed_code_is_a_new_content_and_going_back_another(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,paid,2.00"))
    run_all(shop)
    for text, expected in ((REVENUE, 2), (REVENUE + "HAVING status = 'new'", 1), (REVENUE, 2)):
        transform(shop, "gold.revenue", text)
        assert shop.load("gold.revenue").outcome is Outcome.LOADED
        assert len(revenue(shop)) == expected
        assert shop.load("gold.revenue").outcome is Outcome.NOTHING_NEW


def test_a_lost_record_is_settled_by_the_marker(shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    transform(shop, "gold.revenue", REVENUE.replace("full_refresh", "append_only"))
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    shop.load("silver.orders")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        shop.run("gold.revenue")
    report = shop.load("gold.revenue")
    assert (len(report.recovered), len(report.receipts)) == (1, 0)
    assert revenue(shop) == [("new", 1)]
    shop.lose_ledger()
    assert len(shop.load("gold.revenue").recovered) == 1
    assert revenue(shop) == [("new", 1)]


INCREMENTAL = """-- @merge_strategy: incremental
-- @unique_key: order_id
-- @watermark_column: order_id
SELECT order_id, amount * 2 AS twice FROM {{ ref('silver.orders') }}
{% if is_incremental() %} WHERE order_id > {{ watermark_value }} {% endif %}
"""


def test_an_incremental_query_goes_on_from_its_watermark(shop: DatabaseShop) -> None:
    transform(shop, "gold.twice", INCREMENTAL)
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,new,2.00"))
    first = run_all(shop)["gold.twice"]
    assert first.counts.total == 2, first.failures
    shop.drop("orders/2.csv", csv("1,paid,9.00", "3,new,3.00"))
    second = run_all(shop)["gold.twice"]
    assert (second.counts.total, second.receipts[0].watermark) == (1, Watermark("3", "bigint"))
    assert shop.rows("gold.twice", "order_id") == [(1,), (2,), (3,)]


PYTHON = """# @merge_strategy: upsert
# @unique_key: order_id
from pyspark.sql import functions as F

def transform(ctx):
    rates = ctx.landing_zone("rates").select(F.col("rate").cast("decimal(5,2)")).first()[0]
    assert not ctx.is_incremental()
    return ctx.ref("silver.orders").select("order_id", (F.col("amount") * F.lit(rates)).alias("amount"))
"""


def test_a_python_pipeline_reads_tables_and_landing_zones(shop: DatabaseShop) -> None:
    transform(shop, "gold.rated", PYTHON, "pipeline.py")
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    shop.drop("rates/1.csv", "rate\n1.50\n")
    report = run_all(shop)["gold.rated"]
    assert report.outcome is Outcome.LOADED, report.failures
    assert [Decimal(str(row[0])) for row in shop.rows("gold.rated", "amount")] == [Decimal("1.5")]
    assert run_all(shop)["gold.rated"].outcome is Outcome.NOTHING_NEW
    shop.drop("rates/1.csv", "rate\n2.00\n")
    assert run_all(shop)["gold.rated"].counts.updated == 1


def test_an_input_that_is_not_there_yet_is_waited_for(shop: DatabaseShop) -> None:
    transform(shop, "gold.revenue", REVENUE)
    report = shop.load("gold.revenue")
    assert report.outcome is Outcome.NOTHING_NEW
    assert report.discovery.waiting == (DeferredInput("silver.orders", "its table does not exist yet"),)


def test_all_columns_of_an_input_are_those_that_its_files_have(shop: DatabaseShop) -> None:
    transform(shop, "gold.all", "SELECT *, _source_file AS file FROM {{ ref('silver.orders') }}")
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    report = run_all(shop)["gold.all"]
    assert report.outcome is Outcome.LOADED, report.failures
    columns = [row[1] for row in shop.sql('PRAGMA table_info("gold.all")')]
    assert columns == ["order_id", "status", "amount", "file"]


def test_what_is_wrong_with_the_rows_is_told_with_the_file_of_the_transform(shop: DatabaseShop) -> None:
    wrong = (
        "-- @merge_strategy: upsert\n-- @unique_key: nobody\nSELECT order_id FROM {{ ref('silver.orders') }}"
    )
    transform(shop, "gold.revenue", wrong)
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    message = run_all(shop)["gold.revenue"].failures[0].message
    assert "gold/revenue/pipeline.sql" in message and "nobody" in message


def test_an_empty_landing_zone_is_waited_for(shop: DatabaseShop) -> None:
    transform(shop, "gold.rates", "SELECT * FROM {{ landing_zone('rates') }}")
    (shop.root / "landing/rates").mkdir()
    report = shop.load("gold.rates")
    assert report.discovery.waiting == (DeferredInput("landing zone rates", "it holds no new files yet"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT\n  nonsense FROM {{ ref('silver.orders') }}", "pipeline.sql:2"),
        ("SELECT 1 AS a, order_id AS a FROM {{ ref('silver.orders') }}", "a"),
    ],
)
def test_what_spark_refuses_is_told_with_the_line_of_the_template(
    shop: DatabaseShop, text: str, said: str
) -> None:
    transform(shop, "gold.revenue", text)
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    shop.load("silver.orders")
    report = shop.run("gold.revenue")
    assert report.outcome is Outcome.FAILED
    assert said in report.failures[0].message
    assert not shop.has("gold.revenue")


def test_a_retry_reads_what_the_first_try_saw_and_a_second_batch_the_rest(
    lake: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Delta, whose tables can be read as they were."""
    transform(
        lake, "gold.seen", "-- @merge_strategy: append_only\nSELECT order_id FROM {{ ref('silver.orders') }}"
    )
    lake.drop("orders/1.csv", csv("1,new,1.00"))
    lake.load("silver.orders")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(LakehouseLoad, "commit", dies)
        lake.run("gold.seen")
    lake.drop("orders/2.csv", csv("2,new,1.00"))
    lake.load("silver.orders")
    first, second = lake.load("gold.seen").receipts
    assert (first.counts.total, second.counts.total) == (1, 2)
    assert lake.rows("gold.seen", "order_id") == [(1,), (1,), (2,)]


def test_a_malformed_row_of_a_landing_zone_is_told_with_its_file(shop: DatabaseShop) -> None:
    transform(shop, "gold.rates", "SELECT id FROM {{ landing_zone('rates') }}")
    shop.drop("rates/1.ndjson", '{"id": 1}\n{"id": 2, oops\n')
    [failure] = shop.run("gold.rates").failures
    assert failure.message.startswith("pipelines/gold/rates/pipeline.sql: ")
    assert failure.message.endswith('rates/1.ndjson holds a malformed record: {"id": 2, oops')
    assert not shop.has("gold.rates")
