"""A power loss, or a folder put together from two backups: the table's log ends before what was recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallymark.destinations.delta.durable import files_of_commit
from tallymark.destinations.delta.log import commit_file
from tallymark.destinations.delta.transactions import last_transaction
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.home import Folder
from tallymark.ledger.ledger import Ledger
from tallymark.model.report import Outcome
from unit.flow.shop import Killed, Shop, csv, dies
from unit.flow.test_flow_markers import EVENTS, clean_up_the_log, deliver, ids, sql


@pytest.fixture
def events(lake: Shop) -> Shop:
    lake.pipeline("silver.orders", EVENTS)
    return lake


def lose_newest(shop: Shop) -> None:
    folder = shop.place("silver.orders")
    version = shop.version()
    for file in (folder / "_delta_log").glob(f"*{version:020}.*"):
        file.unlink()


def leave_newest_empty(shop: Shop) -> None:
    """Its name was on the disk, its content was not."""
    folder = shop.place("silver.orders")
    version = shop.version()
    (folder / f"_delta_log/.{version:020}.json.crc").unlink(missing_ok=True)
    commit_file(folder, version).write_bytes(b"")


def replace_newest(shop: Shop) -> None:
    """Somebody else commits under the same version before we look."""
    lose_newest(shop)
    sql(shop, "ALTER TABLE {0} SET TBLPROPERTIES ('some' = 'thing')")


@pytest.mark.parametrize("loses", [lose_newest, leave_newest_empty, replace_newest])
def test_a_run_with_nothing_new_loads_what_the_log_lost(events: Shop, loses: Callable[[Shop], None]) -> None:
    deliver(events, 1, 2)
    events.load()
    loses(events)
    report = events.load()
    assert (report.outcome, len(report.undone), len(report.receipts)) == (Outcome.LOADED, 1, 1)
    assert ids(events) == [1, 2]
    assert events.load().outcome is Outcome.NOTHING_NEW


@pytest.mark.slow
def test_recover_notices_lost_commits_and_the_copies_say_so(events: Shop) -> None:
    deliver(events, 1, 2, 3)
    events.load()
    lose_newest(events)
    lose_newest(events)
    with events.open() as project:
        [report] = project.recover()
        assert len(report.undone) == 2
        assert project.status()[0].files == {"COMMITTED": 1, "PENDING": 2}
    deliver(events, 4)
    assert [receipt.sequence for receipt in events.load().receipts] == [4, 5, 6]
    assert ids(events) == [1, 2, 3, 4]
    events.lose_ledger()
    assert len(events.load().recovered) == 4
    assert ids(events) == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_crash_before_the_record_and_then_a_power_loss(
    events: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(events, 1)
    events.load()
    deliver(events, 2)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        events.run()
    lose_newest(events)
    assert len(events.load().receipts) == 1
    assert ids(events) == [1, 2]


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_is_on_the_disk_before_it_is_recorded(
    lake: Shop, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """The second load changes rows, so that it writes deletion vectors."""
    lake.pipeline(
        "silver.orders",
        "source: {files: landing/orders/*}\nmerge_strategy: upsert\nunique_key: [order_id]\n",
    )
    (lake.root / "tallymark.yaml").write_text(
        f"destinations: {{lake: {{type: delta, path: warehouse, durable: {str(durable).lower()}}}}}\n"
    )
    synced: list[Path] = []
    before: dict[str, set[Path]] = {}
    fsync, commit, add = os.fsync, Ledger.commit_batch, FactFiles.add

    def spy(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    def note(name: str, work: Callable[..., None]) -> Callable[..., None]:
        def noted(*given: object) -> None:
            before[name] = set(synced)
            work(*given)

        return noted

    monkeypatch.setattr(os, "fsync", spy)
    monkeypatch.setattr(Ledger, "commit_batch", note("ledger", commit))
    monkeypatch.setattr(FactFiles, "add", note("copies", add))
    for version, numbers in enumerate((range(50), range(5))):
        lake.drop(f"orders/{version}.csv", csv(*(f"{number},load {version},1" for number in numbers)))
        synced.clear()
        lake.load()
        table = lake.place("silver.orders").resolve()
        written = [*files_of_commit(table, version), commit_file(table, version)]
        assert all(path.is_file() for path in written)
        assert any(path.suffix == ".bin" for path in written) == (version == 1)
        needed = {*written, *(path.parent for path in written)}
        assert (needed <= before["ledger"], needed <= before["copies"]) == (durable, durable)


def test_a_new_table_is_durable_with_the_folders_above_it(
    events: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def spy(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", spy)
    deliver(events, 1)
    events.load()
    place = events.place("silver.orders").resolve()
    assert {place / "_delta_log", place, place.parent, events.root.resolve()} <= set(synced)


def test_a_load_whose_marker_was_cleaned_up_before_it_was_copied(
    events: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its transaction is left in Delta's checkpoint, and the ledger knows its contents."""
    deliver(events, 1)
    events.load()
    deliver(events, 2)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        events.run()
    sql(events, "ALTER TABLE {0} SET TBLPROPERTIES ('some' = 'thing')")
    clean_up_the_log(events.place("silver.orders"))
    home = Folder.at(events.place("silver.orders"))
    by_files, by_spark = (last_transaction(events.spark, place) for place in (home, Folder(home.url)))
    assert by_files == by_spark
    assert by_files is not None
    assert by_files.sequence == 2
    report = events.load()
    assert (report.outcome, len(report.recovered), len(report.undone)) == (Outcome.NOTHING_NEW, 1, 0)
    assert any("number 2" in warning for warning in report.warnings)
    assert ids(events) == [1, 2]
    assert events.load().undone == ()
    deliver(events, 3)
    assert [receipt.sequence for receipt in events.load().receipts] == [3]
    assert ids(events) == [1, 2, 3]
