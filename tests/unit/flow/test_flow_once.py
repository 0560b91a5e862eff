"""A content is applied once, whatever dies when."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tallymark.destinations.delta.table import DeltaTable
from tallymark.destinations.lakehouse.commit import LakehouseLoad
from tallymark.errors import CommitUnknown
from tallymark.ledger.ledger import Ledger
from tallymark.model.receipt import Counts
from tallymark.model.report import Outcome
from unit.flow.shop import ORDERS, Killed, Shop, csv, dies


def test_a_load_and_what_another_reader_finds(shop: Shop) -> None:
    shop.drop("orders/1.csv", csv("1,new,10.50", "2,new,7.00"))
    shop.drop("orders/2.csv", csv("2,paid,7.00", "3,new,0.10"))
    report = shop.load()
    assert report.counts == Counts(inserted=3, skipped=1, total=4)
    assert shop.rows("silver.orders", "order_id", "status", "amount") == [
        (1, "new", Decimal("10.50")),
        (2, "paid", Decimal("7.00")),
        (3, "new", Decimal("0.10")),
    ]
    files = dict(shop.rows("silver.orders", "order_id", "_source_file"))
    assert files[1].endswith("landing/orders/1.csv") and files[2].endswith("landing/orders/2.csv")
    version, again = shop.version(), shop.load()
    assert again.outcome is Outcome.NOTHING_NEW
    assert (again.counts.total, again.receipts, shop.version()) == (0, (), version)


def test_a_lost_ledger_is_rebuilt_from_the_markers(shop: Shop) -> None:
    shop.drop("orders/1.csv", csv("1,new,10.50"))
    shop.load()
    shop.drop("orders/2.csv", csv("1,paid,10.50"))
    shop.load()
    shop.lose_ledger()
    report = shop.load()
    assert (report.outcome, len(report.recovered), shop.version()) == (Outcome.NOTHING_NEW, 2, 1)
    with shop.open() as project:
        records = project.history("silver.orders")
    assert [record.batch_id for record in reversed(records)] == shop.markers()
    assert [record.receipt.counts.updated for record in records if record.receipt] == [1, 0]
    shop.drop("orders/3.csv", csv("1,shipped,10.50"))
    shop.load()
    assert shop.rows() == [(1, "shipped")]


def test_dying_before_the_commit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.drop("orders/1.csv", csv("1,new,10.50"))
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(LakehouseLoad, "commit", dies)
        shop.run()
    report = shop.load()
    assert (len(report.receipts), len(report.recovered)) == (1, 0)
    with shop.open() as project:
        assert project.history()[0].attempts == 2


def test_an_old_file_never_overwrites_a_newer_one(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lost update: file 1 is applied and its record lost, file 2 comes, file 1 is claimed again."""
    shop.drop("orders/1.csv", csv("1,new,10.50"))
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        shop.run()
    shop.drop("orders/2.csv", csv("1,paid,10.50"))
    report = shop.load()
    assert (len(report.recovered), len(report.receipts), shop.version()) == (1, 1, 1)
    assert shop.rows() == [(1, "paid")]
    assert shop.load().outcome is Outcome.NOTHING_NEW


def test_a_lost_answer_is_settled_by_the_marker(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    commit: Callable[..., Any] = LakehouseLoad.commit

    def commits_and_loses_the_answer(self: LakehouseLoad, marker: Any) -> None:
        commit(self, marker)
        raise CommitUnknown("the answer got lost")

    shop.drop("orders/1.csv", csv("1,new,10.50"))
    with monkeypatch.context() as patched:
        patched.setattr(LakehouseLoad, "commit", commits_and_loses_the_answer)
        report = shop.run()
    assert (report.outcome, report.failures[0].code) == (Outcome.FAILED, "TM504")
    report = shop.load()
    assert (len(report.recovered), shop.version(), shop.rows()) == (1, 0, [(1, "new")])


def test_a_foreign_commit_between_plan_and_apply(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.drop("orders/1.csv", csv("1,new,10.50"))
    shop.load()
    shop.drop("orders/2.csv", csv("1,paid,10.50", "2,new,1.00"))
    commit: Callable[..., Any] = LakehouseLoad.commit
    interfered: list[bool] = []

    def after_somebody_else(self: LakehouseLoad, marker: Any) -> Any:
        if not interfered:
            interfered.append(True)
            table = shop.root / "warehouse/silver/orders"
            shop.spark.sql(f"INSERT INTO delta.`{table}` (order_id, status) VALUES (2, 'theirs')")
        return commit(self, marker)

    monkeypatch.setattr(LakehouseLoad, "commit", after_somebody_else)
    report = shop.load()
    assert (report.counts.updated, report.counts.inserted) == (2, 0)
    assert shop.rows() == [(1, "paid"), (2, "new")]


def test_markers_that_were_not_copied_are_healed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.drop("orders/1.csv", csv("1,new,10.50"))
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "settle", lambda self: (_ for _ in ()).throw(OSError("full")))
        assert "markers were not copied" in shop.load().warnings[0]
    shop.drop("orders/2.csv", csv("2,new,10.50"))
    shop.load()
    copies = shop.spark.read.parquet(f"{shop.root}/warehouse/silver/orders/_tallymark/markers")
    assert copies.select("content_hash").distinct().count() == 2


def test_a_dropped_table_is_loaded_anew_only_after_recovery(shop: Shop) -> None:
    """The ledger believes what it recorded; markers are asked when there is something to load."""
    shop.drop("orders/1.csv", csv("1,new,10.50"))
    shop.load()
    shop.lose_ledger()
    shutil.rmtree(shop.root / "warehouse/silver/orders")
    assert shop.load().counts.inserted == 1


def test_two_projects_that_share_a_table(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Another ledger commits while our batch is open: its number is used, so it is batched anew."""
    other = Shop(tmp_path_factory.mktemp("other"), shop.spark)
    (other.root / "tallymark.yaml").write_text(
        f"destinations: {{lake: {{type: delta, path: {shop.root}/warehouse}}}}"
    )
    other.pipeline("silver.orders", ORDERS)
    shop.drop("orders/1.csv", csv("1,ours,1.00"))
    other.drop("orders/1.csv", csv("2,theirs,1.00"))
    commit: Callable[..., Any] = LakehouseLoad.commit
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LakehouseLoad, "commit", dies)
        with pytest.raises(Killed):
            shop.run()
    assert LakehouseLoad.commit is commit
    other.load()
    shop.load()
    assert shop.rows() == [(1, "ours"), (2, "theirs")]
