"""Counts that do not balance are one error, wherever they are found. No file is at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tallymark.checks.split import split
from tallymark.flow import load
from tallymark.model.plan import Merge, Plan
from tallymark.strategies.build import build_plan
from unit.flow.shop import ORDERS, DatabaseShop, Shop, csv


@pytest.fixture(params=["lake", "store"])
def place(request: pytest.FixtureRequest) -> Shop:
    made: Shop = request.getfixturevalue(request.param)
    made.pipeline("silver.orders", ORDERS)
    made.drop("orders/1.csv", csv("1,new,1", "2,new,2"))
    made.drop("orders/2.csv", csv("3,new,3", "4,new,4"))
    return made


def expect_no_file_blamed(shop: Shop) -> None:
    """The batch is not halved, its files wait as before, and the next run loads them."""
    report = shop.run()
    assert [failure.code for failure in report.failures] == ["TM505"], report.failures
    assert not report.receipts
    with shop.open() as project:
        assert len(project.history()) == 1
        [status] = project.status()
    assert (status.files, status.failed_files) == ({"PENDING": 2}, ())


def test_fewer_labels_than_rows(place: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    build: Callable[..., Plan] = build_plan

    def lose_labels(*args: Any, **kwargs: Any) -> Plan:
        plan = build(*args, **kwargs)
        assert isinstance(plan.shape, Merge)
        return replace(plan, shape=replace(plan.shape, labels=plan.shape.labels.limit(1)))

    monkeypatch.setattr(load, "build_plan", lose_labels)
    expect_no_file_blamed(place)
    monkeypatch.undo()
    assert place.load().receipts[0].inserted == 4


def test_fewer_rows_planned_than_read(place: Shop, monkeypatch: pytest.MonkeyPatch) -> None:

    @contextmanager
    def read_one_more(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with split(*args, **kwargs) as checked:
            yield replace(checked, total=checked.total + 1)

    monkeypatch.setattr(load, "split", read_one_more)
    expect_no_file_blamed(place)
    monkeypatch.undo()
    assert place.load().receipts[0].inserted == 4


def test_a_database_that_changes_fewer_rows_than_planned(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS)
    store.drop("orders/0.csv", csv("9,old,9"))
    store.load()
    store.drop("orders/1.csv", csv("1,new,1"))
    store.drop("orders/2.csv", csv("2,new,2"))
    store.sql(
        'CREATE TRIGGER "lossy" BEFORE INSERT ON "silver.orders" WHEN NEW.order_id = 2 '
        "BEGIN SELECT RAISE(IGNORE); END"
    )
    report = store.run()
    assert [failure.code for failure in report.failures] == ["TM505"]
    with store.open() as project:
        [status] = project.status()
    assert status.files == {"COMMITTED": 1, "PENDING": 2}
    store.sql('DROP TRIGGER "lossy"')
    assert store.load().receipts[0].inserted == 2
