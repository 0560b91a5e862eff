"""Markers of a Delta table outlive whatever is done to the table, or go away together with the rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tallymark.ledger.ledger import Ledger
from tallymark.model.report import Outcome
from unit.flow.shop import Killed, Shop, csv, dies

# Appending shows every content that is loaded twice.
EVENTS = """
source: {files: landing/orders/*}
columns: [{name: order_id, type: bigint}]
merge_strategy: append_only
batch: {max_files: 1}
"""


@pytest.fixture
def events(lake: Shop) -> Shop:
    lake.pipeline("silver.orders", EVENTS)
    return lake


def deliver(shop: Shop, *numbers: int) -> None:
    for number in numbers:
        shop.drop(f"orders/{number}.csv", csv(f"{number},new,1.00"))


def ids(shop: Shop, table: str = "silver.orders") -> list[int]:
    return [row[0] for row in shop.rows(table, "order_id")]


def sql(shop: Shop, statement: str) -> None:
    """`{0}` stands for silver.orders, `{1}` for gold.orders."""
    places = [f"delta.`{shop.place(name)}`" for name in ("silver.orders", "gold.orders")]
    shop.spark.sql(statement.format(*places)).collect()


def clean_up_the_log(table: Path) -> None:
    """What Delta does once a checkpoint is older than `delta.logRetentionDuration`, all at once."""
    delta = DeltaTable(str(table))
    delta.create_checkpoint()
    for version in range(delta.version()):
        (table / f"_delta_log/{version:020}.json").unlink()


@pytest.mark.slow
def test_markers_outlive_vacuum_checkpoint_and_log_clean_up(
    events: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them was copied by the run after that of its commit, which died."""
    deliver(events, 1)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        events.run()
    deliver(events, 2)
    assert len(events.load().recovered) == 1
    sql(events, "OPTIMIZE {0}")
    events.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    events.spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    sql(events, "VACUUM {0} RETAIN 0 HOURS")
    clean_up_the_log(events.place("silver.orders"))
    assert len(events.markers()) == 0, "the log still has them"
    events.lose_ledger()
    report = events.load()
    assert (report.outcome, len(report.recovered)) == (Outcome.NOTHING_NEW, 2)
    deliver(events, 3)
    assert events.load().receipts[0].sequence == 3
    assert ids(events) == [1, 2, 3]


@pytest.mark.slow
def test_what_a_restore_undid_is_loaded_again(events: Shop) -> None:
    deliver(events, 1, 2, 3)
    events.load()
    sql(events, "RESTORE TABLE {0} TO VERSION AS OF 0")
    assert ids(events) == [1]
    with events.open() as project:
        project.recover()
        assert project.status()[0].files == {"COMMITTED": 1, "PENDING": 2}
    assert ids(events) == [1]
    assert len(events.load().receipts) == 2
    assert ids(events) == [1, 2, 3]
    assert events.load().outcome is Outcome.NOTHING_NEW


@pytest.mark.slow
def test_a_run_alone_notices_a_restore(events: Shop) -> None:
    deliver(events, 1, 2)
    events.load()
    sql(events, "RESTORE TABLE {0} TO VERSION AS OF 0")
    assert len(events.load().receipts) == 1
    assert ids(events) == [1, 2]
    sql(events, "RESTORE TABLE {0} TO VERSION AS OF 1")  # back to where both are: nothing is undone
    assert events.load().outcome is Outcome.NOTHING_NEW
    assert ids(events) == [1, 2]


@pytest.mark.slow
def test_a_restore_and_a_lost_ledger(events: Shop) -> None:
    deliver(events, 1, 2)
    events.load()
    sql(events, "RESTORE TABLE {0} TO VERSION AS OF 0")
    events.lose_ledger()
    report = events.load()
    assert (len(report.recovered), len(report.receipts)) == (1, 1)
    assert ids(events) == [1, 2]


def test_one_file_feeds_two_tables(events: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker of one table says nothing about the other, also when the ledger cannot tell."""
    events.pipeline("gold.orders", EVENTS)
    deliver(events, 1)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        events.run("silver.orders")
    assert len(events.load("gold.orders").receipts) == 1
    assert len(events.load("silver.orders").recovered) == 1
    events.lose_ledger()
    for name in ("silver.orders", "gold.orders"):
        report = events.load(name)
        assert (len(report.recovered), report.outcome) == (1, Outcome.NOTHING_NEW)
        assert ids(events, name) == [1]


@pytest.mark.slow
def test_a_table_that_was_dropped_and_made_again_starts_anew(events: Shop) -> None:
    deliver(events, 1, 2)
    events.load()
    shutil.rmtree(events.place("silver.orders"))
    assert len(events.load().receipts) == 2
    assert ids(events) == [1, 2]


@pytest.mark.slow
def test_a_copy_of_the_folder_carries_its_markers(events: Shop) -> None:
    deliver(events, 1)
    events.load()
    shutil.copytree(events.place("silver.orders"), events.place("gold.orders"))
    events.pipeline("gold.orders", EVENTS)
    deliver(events, 2)
    report = events.load("gold.orders")
    assert (len(report.recovered), len(report.receipts)) == (1, 1)
    assert ids(events, "gold.orders") == [1, 2]


@pytest.mark.slow
def test_a_clone_has_no_markers(events: Shop) -> None:
    """Delta's clone has the rows and a log of its own: a content that is delivered to it is new there."""
    deliver(events, 1)
    events.load()
    sql(events, "CREATE TABLE {1} SHALLOW CLONE {0}")
    events.pipeline("gold.orders", EVENTS)
    report = events.load("gold.orders")
    assert (len(report.recovered), len(report.receipts)) == (0, 1)
    assert ids(events, "gold.orders") == [1, 1]
    assert ids(events) == [1]
