"""Files are moved away only once their rows are certain to be in the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallymark.flow import run as run_module
from tallymark.flow.transform.archive import archive_committed
from tallymark.model.report import Outcome
from unit.flow.shop import ORDERS, DatabaseShop, csv


@pytest.fixture
def shop(store: DatabaseShop) -> DatabaseShop:
    store.pipeline("silver.orders", ORDERS + "archive_landing_zones: true\n")
    return store


def places(shop: DatabaseShop) -> list[str]:
    top = shop.root / "landing/orders"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def test_loaded_files_are_moved_and_never_read_again(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    twin = shop.drop("orders/2.csv", csv("1,new,1.00"))
    shop.drop("orders/3.csv.tmp", "half")
    shop.load()
    assert places(shop) == ["2.csv", "3.csv.tmp", "_archive/1.csv"], "a duplicate was not read"
    twin.unlink()
    assert shop.load().outcome is Outcome.NOTHING_NEW
    shop.drop("orders/1.csv", csv("1,paid,1.00"))
    shop.load()
    assert shop.rows() == [(1, "paid")]
    assert len([name for name in places(shop) if name.startswith("_archive/1.")]) == 2


def test_a_failed_file_stays(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("x,new,1.00", "y,new,1.00", "3,new,1.00"))
    assert shop.run().outcome is Outcome.FAILED
    assert places(shop) == ["1.csv"]


def test_what_a_dead_run_left_is_moved_by_the_next(
    shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    shop.drop("orders/1.csv", csv("1,new,1.00"))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run_module, "archive_committed", dies)
        shop.run()
    assert places(shop) == ["1.csv"]
    assert shop.load().outcome is Outcome.NOTHING_NEW
    assert places(shop) == ["_archive/1.csv"]


def test_another_file_in_its_place_is_left_alone(shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shop.drop("orders/1.csv", csv("1,new,1.00"))

    def replaced_first(job: Any) -> tuple[str, ...]:
        Path(path).write_text(csv("1,replaced,1.00"))
        return archive_committed(job)

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "archive_committed", replaced_first)
        shop.load()
    assert places(shop) == ["1.csv"]
    shop.load()
    assert (shop.rows(), places(shop)) == ([(1, "replaced")], ["_archive/1.csv"])


def test_files_elsewhere_are_refused(shop: DatabaseShop) -> None:
    config = ORDERS.replace("landing/orders/*", "s3a://bucket/orders/*")
    shop.pipeline("silver.orders", config + "archive_landing_zones: true\n")
    with pytest.raises(Exception, match="archive_landing_zones"):
        shop.run()
