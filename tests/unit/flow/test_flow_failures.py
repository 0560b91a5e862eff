"""Bad input ends in a clear error, nothing is half-written, and what can go on goes on."""

from __future__ import annotations

import gzip
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallymark.errors import ConfigError, DestinationError
from tallymark.flow import load as load_module
from tallymark.ledger.ledger import Ledger
from tallymark.model.report import Outcome, PipelineReport
from tallymark.sources.new_files import recheck
from unit.flow.shop import ORDERS, DatabaseShop, Shop, csv

EVENTS = "source: {files: 'landing/events/*'}\nmerge_strategy: append_only\n"
TRUNCATED = gzip.compress(os.urandom(200_000).hex().encode())[:50_000]


@pytest.fixture
def shop(store: DatabaseShop) -> DatabaseShop:
    """On a database, since most of this happens before the table is asked."""
    store.pipeline("silver.orders", ORDERS)
    return store


def failure(report: PipelineReport) -> str:
    assert report.outcome is Outcome.FAILED
    return " | ".join(f"{f.code} {f.message} -> {f.hint}" for f in report.failures)


def test_a_failed_file_holds_back_those_after_it(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    broken = shop.drop("orders/2.csv.gz", TRUNCATED)
    shop.drop("orders/3.csv", csv("1,paid,1.00"))
    report = shop.run()
    assert str(broken) in failure(report)
    assert shop.rows() == [(1, "new")]
    assert [Path(path).name for path in report.held_back] == ["3.csv"]
    broken.write_bytes(gzip.compress(csv("2,new,1.00").encode()))
    shop.load()
    assert shop.rows() == [(1, "paid"), (2, "new")]


def test_a_failed_file_that_was_removed_holds_back_nothing(shop: DatabaseShop) -> None:
    broken = shop.drop("orders/1.csv.gz", TRUNCATED)
    shop.drop("orders/2.csv", csv("1,paid,1.00"))
    assert shop.run().held_back
    broken.unlink()
    shop.load()
    assert shop.rows() == [(1, "paid")]


def test_where_order_does_not_matter_the_rest_goes_on(shop: DatabaseShop) -> None:
    shop.pipeline("silver.orders", EVENTS)
    shop.drop("events/1.csv", "id\n1\n")
    broken = shop.drop("events/2.csv.gz", TRUNCATED)
    shop.drop("events/3.csv", "id\n3\n")
    report = shop.run()
    assert str(broken) in failure(report)
    assert report.held_back == ()
    assert shop.rows("silver.orders", "id") == [("1",), ("3",)]


def test_after_the_last_attempt_a_file_waits_for_requeue(shop: DatabaseShop) -> None:
    broken = shop.drop("orders/2.csv.gz", TRUNCATED)
    for _ in range(3):
        shop.run()
    stuck = shop.run()
    assert "requeue" in failure(stuck) and "3 times" in failure(stuck)
    with shop.open() as project:
        failed = project.status()[0].failed_files[0]
        assert (failed.path, failed.attempts) == (str(broken), 3)
        assert project.requeue("silver.orders") == 1
    assert str(broken) in failure(shop.run())


def test_a_file_that_lacks_the_key_gives_bad_rows(shop: DatabaseShop) -> None:
    for number in (1, 2, 3):
        shop.drop(f"orders/{number}.csv", csv(f"{number},new,1.00"))
    odd = shop.drop("orders/4.csv", "order,status\n4,new\n")
    assert shop.load().counts.rejected == 1
    assert shop.rows() == [(1, "new"), (2, "new"), (3, "new")]
    with shop.open() as project:
        assert [row.file for row in project.quarantine_show("silver.orders")] == [str(odd)]


def test_bad_rows_are_kept_with_their_place(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00", "x,new,1.00", "3,new,2.00", "4,new,1,00"))
    report = shop.load()
    assert (report.counts.inserted, report.counts.rejected, report.counts.total) == (2, 2, 4)
    with shop.open() as project:
        bad = sorted(project.quarantine_show("silver.orders"), key=lambda row: row.row or 0)
        places = [(row.row, row.column, Path(row.file).name) for row in bad]
        assert places == [(2, "order_id", "1.csv"), (4, "", "1.csv")]
        dropped = project.quarantine_drop("silver.orders", bad[0].batch_id)
        assert (dropped, project.quarantine_list()) == (2, [])


def test_bad_rows_of_a_batch_that_failed_are_not_replayed(
    shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is batched again, with another one, so its bad rows are found again."""
    events = EVENTS + "columns: [{name: at, type: date, format: FORMAT}]\nquarantine: {max_fraction: 1.0}\n"
    shop.pipeline("silver.orders", events.replace("FORMAT", "yyyy-MM-dd"))
    shop.drop("events/1.csv", "id,at\n1,2026-11-01\n2,01/11/2026\n")
    with monkeypatch.context() as patched:
        patched.setattr(
            "tallymark.flow.load.recheck", lambda *_: _raise(DestinationError("the disk is full"))
        )
        assert "the disk is full" in failure(shop.run())
    with shop.open() as project:
        assert not project.quarantine_list() and not project.quarantine_show("silver.orders")
    shop.drop("events/2.csv", "id,at\n3,2026-11-01\n")
    assert shop.load().counts.rejected == 1
    with shop.open() as project:
        assert [summary.rows for summary in project.quarantine_list()] == [1]
    shop.pipeline("silver.orders", events.replace("FORMAT", "dd/MM/yyyy"))
    with shop.open() as project:
        for replays in (1, 0):
            assert len(project.quarantine_replay("silver.orders").receipts) == replays
            assert project.quarantine_list() == []
    assert shop.rows("silver.orders", "id") == [("1",), ("2",), ("3",)]


def _raise(error: Exception) -> None:
    raise error


def test_a_replay_is_exactly_once(shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    events = EVENTS + "columns: [{name: at, type: date, format: FORMAT}]\nquarantine: {max_fraction: 1.0}\n"
    shop.pipeline("silver.orders", events.replace("FORMAT", "yyyy-MM-dd"))
    shop.drop("events/1.csv", "id,at\n1,2026-11-01\n2,01/11/2026\n3,nonsense\n")
    assert shop.load().counts.rejected == 2
    shop.pipeline("silver.orders", events.replace("FORMAT", "dd/MM/yyyy"))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt), shop.open() as project:
        patched.setattr(Ledger, "commit_batch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        project.quarantine_replay("silver.orders")
    for _ in range(2):
        with shop.open() as project:
            report = project.quarantine_replay("silver.orders")
            assert "none of the 1 quarantined rows" in failure(report)
        assert shop.rows("silver.orders", "id") == [("1",), ("2",)]
    with shop.open() as project:
        assert [row.raw for row in project.quarantine_show("silver.orders")] == ['{"id":"3","at":"nonsense"}']


def test_too_many_bad_rows_fail_the_batch_with_nothing_written(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("x,new,1.00", "y,new,1.00", "3,new,1.00"))
    told = failure(shop.run())
    assert "TM301" in told and "1.csv" in told
    assert not shop.has("silver.orders")
    with shop.open() as project:
        assert project.quarantine_list() == []


def test_a_forgotten_key_never_wipes_a_table(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,new,1.00"))
    shop.load()
    shop.pipeline("silver.orders", ORDERS.replace("unique_key: [order_id]\n", ""))
    shop.drop("orders/2.csv", csv("3,new,1.00"))
    told = failure(shop.run())
    assert "TM401" in told and "unique_key" in told
    assert len(shop.rows()) == 2
    report = shop.load(allow_deletes=True)
    assert (shop.rows(), "unique_key" in report.warnings[0]) == ([(3, "new")], True)


def test_a_typo_in_the_strategy_touches_nothing(shop: DatabaseShop) -> None:
    shop.pipeline("silver.orders", ORDERS.replace("upsert", "upsrt"))
    with pytest.raises(ConfigError, match="upsert"):
        shop.run()


def test_odd_but_good_files(shop: DatabaseShop) -> None:
    """In one batch: empty, header only, BOM, Windows line ends, 10 MB line, reordered, quoted newline."""
    files = {
        "empty": b"",
        "header_only": b"order_id,status,Amt\n",
        "bom": b"\xef\xbb\xbforder_id,status,Amt\n1,bom,1.00\n",
        "windows": b"order_id,status,Amt\r\n2,windows,1.00\r\n",
        "long": b"order_id,status,Amt\n3," + b"x" * 10_000_000 + b",1.00\n",
        "reordered": b"Amt,order_id,status\n1.00,4,reordered\n",
        "quoted": b'order_id,status,Amt\n5,"a\nb",1.00\n',
    }
    for name, content in files.items():
        shop.drop(f"orders/{name}.csv", content)
    assert shop.load().counts.inserted == 5
    assert shop.rows() == [(1, "bom"), (2, "windows"), (3, "x" * 10_000_000), (4, "reordered"), (5, "a\nb")]


def test_only_an_empty_file(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", b"")
    assert shop.load().counts.total == 0
    assert shop.load().outcome is Outcome.NOTHING_NEW


def test_broken_utf8_is_a_bad_row(shop: DatabaseShop) -> None:
    shop.drop("orders/1.csv", b"order_id,status,Amt\n1,caf\xe9,1.00\n2,new,1.00\n")
    report = shop.load()
    assert (report.counts.rejected, shop.rows()) == (1, [(2, "new")])


def test_a_parquet_file_with_another_schema(shop: DatabaseShop) -> None:
    shop.pipeline("silver.orders", ORDERS.replace("landing/orders/*", "landing/orders/*.parquet"))
    good = {"order_id": [1], "status": ["new"], "Amt": ["1.00"]}
    pq.write_table(pa.table(good), shop.root / "landing/orders/1.parquet")
    pq.write_table(pa.table({**good, "status": [{"a": 1}]}), shop.root / "landing/orders/2.parquet")
    told = failure(shop.run())
    assert "status" in told and "struct" in told
    assert shop.rows() == [(1, "new")]


def test_a_folder_named_like_a_file(shop: DatabaseShop) -> None:
    (shop.root / "landing/orders/1.csv").mkdir()
    shop.drop("orders/2.csv", csv("2,new,1.00"))
    shop.load()
    assert shop.rows() == [(2, "new")]


def test_a_missing_folder_is_named(shop: DatabaseShop) -> None:
    shop.pipeline("silver.orders", ORDERS.replace("landing/orders", "landing/order"))
    told = failure(shop.run())
    assert "landing/order" in told and "orders" in told


def test_a_destination_that_is_not_a_table(lake: Shop) -> None:
    place = lake.root / "warehouse/silver/orders"
    place.mkdir(parents=True)
    (place / "precious.csv").write_text("a\n1\n")
    lake.drop("orders/1.csv", csv("1,new,1.00"))
    assert "TM501" in failure(lake.run())
    assert sorted(path.name for path in place.iterdir()) == ["precious.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(shop: DatabaseShop) -> None:
    path = shop.drop("orders/1.csv", csv("1,new,1.00"))
    path.chmod(0)
    assert str(path) in failure(shop.run())


def test_a_dangling_link_is_told_and_holds_its_place(shop: DatabaseShop) -> None:
    (shop.root / "landing/orders/2.csv").symlink_to("nowhere")
    shop.drop("orders/1.csv", csv("1,new,1.00"))
    shop.drop("orders/3.csv", csv("3,new,1.00"))
    report = shop.run()
    assert shop.rows()[0] == (1, "new")
    assert report.outcome in (Outcome.FAILED, Outcome.LOADED)


def test_content_that_changes_before_the_commit(shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shop.drop("orders/1.csv", csv("1,new,1.00"))

    def changed_first(files: Any, root: Path, spark: Any) -> None:
        path.write_text(csv("1,changed,1.00"))
        recheck(files, root, spark)

    with monkeypatch.context() as patched:
        patched.setattr(load_module, "recheck", changed_first)
        assert "TM202" in failure(shop.run())
    assert not shop.has("silver.orders")
    shop.load()
    assert shop.rows() == [(1, "changed")]


def test_one_failing_pipeline_harms_no_other(shop: DatabaseShop) -> None:
    shop.pipeline("bronze.events", EVENTS)
    shop.drop("events/1.csv", "id\n1\n")
    shop.drop("orders/1.csv.gz", TRUNCATED)
    with shop.open() as project:
        report = project.run()
    outcomes = {p.pipeline: p.outcome for p in report.pipelines}
    assert outcomes == {"bronze.events": Outcome.LOADED, "silver.orders": Outcome.FAILED}
    assert not report.ok


@pytest.fixture
def small_disk(lake: Shop) -> Iterator[Path]:
    place = lake.root / "warehouse"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(lake: Shop, small_disk: Path) -> None:
    lake.drop("orders/1.csv", csv("1,new,1.00"))
    lake.load()
    lake.drop("orders/2.csv", csv(*(f"{n},{os.urandom(400).hex()},1.00" for n in range(9000))))
    told = failure(lake.run())
    assert "space" in told
    assert (lake.rows(), lake.version()) == ([(1, "new")], 0)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert lake.load().counts.inserted == 8999
