"""A table that is taken back while a worker has it in hand: what it no longer holds goes before the new."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tallymark.flow import load as load_step
from tallymark.model.report import PipelineReport
from unit.flow.shop import ORDERS, DatabaseShop, Shop, csv

pytestmark = pytest.mark.slow


def run_while(monkeypatch: pytest.MonkeyPatch, shop: Shop, event: Callable[[], object]) -> PipelineReport:
    """The event happens once, when the batch is read: after the claim and before the commit."""
    events, read = [event], load_step.read_batch

    def reading(*given: Any) -> Any:
        if events:
            events.pop()()
        return read(*given)

    monkeypatch.setattr(load_step, "read_batch", reading)
    return shop.run()


def fill(shop: Shop) -> None:
    shop.drop("orders/1.csv", csv("1,first,1", "2,first,1"))
    shop.load()


def check(shop: Shop, report: PipelineReport) -> None:
    assert [failure.code for failure in report.failures] == ["TM503"]
    assert shop.rows() == [(1, "first"), (2, "first")]
    again = shop.load()
    assert len(again.undone) == 1
    assert shop.rows() == [(1, "second"), (2, "third")]
    assert shop.load().receipts == ()


def test_a_restore_under_a_load(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shop)
    shop.drop("orders/2.csv", csv("1,second,1", "2,second,1"))
    shop.load()
    shop.drop("orders/3.csv", csv("2,third,1"))
    restore = f"RESTORE TABLE delta.`{shop.place('silver.orders')}` TO VERSION AS OF 0"
    check(shop, run_while(monkeypatch, shop, lambda: shop.spark.sql(restore).collect()))


def test_a_backup_brought_back_under_a_load(store: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    store.pipeline("silver.orders", ORDERS)
    fill(store)
    backup = shutil.copy(store.root / "shop.db", store.root / "backup.db")
    store.drop("orders/2.csv", csv("1,second,1", "2,second,1"))
    store.load()
    store.drop("orders/3.csv", csv("2,third,1"))
    check(store, run_while(monkeypatch, store, lambda: shutil.copy(backup, store.root / "shop.db")))
