"""The plan says row by row what a load would do, and the load then does exactly that."""

from __future__ import annotations

from tallymark.model.report import PlanReport
from unit.flow.shop import ORDERS, DatabaseShop, Shop, csv


def plan(shop: Shop) -> PlanReport:
    with shop.open() as project:
        return project.plan("silver.orders")[0]


def test_a_plan_writes_nothing_at_all(shop: Shop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    before = sorted(path for path in shop.root.rglob("*"))
    assert plan(shop).counts.inserted == 1
    assert sorted(path for path in shop.root.rglob("*")) == before


def test_the_load_does_what_the_plan_said(shop: Shop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,new,2.00", "3,new,3.00"))
    first = plan(shop)
    assert first.creates_table and first.counts == shop.load().counts
    shop.drop("orders/2.csv", csv("1,paid,1.00", "2,new,2.00", "x,new,1.00", "9,new,1.00", "9,late,1.00"))
    shop.drop("orders/3.csv", "order_id,status,Amt,note\n1,paid,1.00,hello\n")
    second = plan(shop)
    assert (second.counts.updated, second.counts.rejected, second.counts.skipped) == (1, 1, 2)
    assert second.schema_changes == ("add column note string",)
    update = next(sample for sample in second.samples if sample.label == "update")
    assert update.before and update.after
    assert (update.before["status"], update.after["status"]) == ("new", "paid")
    assert (second.bad_rows[0].row, second.bad_rows[0].column) == (3, "order_id")
    assert "_tm_label" in second.sql and second.shape == "Merge"
    assert shop.load().counts == second.counts
    assert plan(shop).empty


def test_a_plan_shows_the_guard_that_would_stop_the_load(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS)
    store.drop("orders/1.csv", csv("1,new,1.00"))
    store.load()
    store.pipeline("silver.orders", ORDERS.replace("unique_key: [order_id]\n", ""))
    store.drop("orders/2.csv", csv("2,new,1.00"))
    shown = plan(store)
    assert "delete 1 of 1 rows" in shown.guards[0] and "unique_key" in shown.warnings[0]


def test_a_plan_of_bad_input_is_a_failure_not_a_crash(shop: Shop) -> None:
    shop.drop("orders/1.csv", "nothing,of,that\n1,2,3\n")
    shown = plan(shop)
    assert shown.failure is not None and "order_id" in shown.failure.message
