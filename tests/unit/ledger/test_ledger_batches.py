"""Batches: intent, outcome, recovery, and what status and history tell of them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tallymark.errors import LedgerError
from tallymark.ledger import Ledger
from tallymark.model.batch import Batch, Files
from tallymark.model.receipt import Receipt
from tallymark.model.report import BatchRecord, FailedFile, Failure, RunState
from unit.ledger.ledger_setup import BROKEN, PIPELINE, TABLE, Worker, file, receipt


def test_a_batch_keeps_id_order_sequence_and_time_through_retries(worker: Worker) -> None:
    files = [file(f"{n}.csv") for n in (3, 1, 2)]
    worker.register(*reversed(files))
    batch = worker.open(*files)
    assert re.fullmatch(r"20261101T101500Z-[0-9a-f]{8}", batch.id)
    assert batch == Batch(batch.id, PIPELINE, TABLE, Files(tuple(files)), 1, worker.clock.now, 1)
    assert worker.ledger.open_batches(TABLE) == [batch]
    assert worker.waiting == {}
    worker.clock.forward(100)
    other_run = worker.ledger.start_run("shop", "run", host="host-2", pid=8)
    again = worker.ledger.retry_batch(worker.lease, batch.id, other_run)
    assert again == Batch(batch.id, PIPELINE, TABLE, Files(tuple(files)), 1, batch.as_of, 2)
    assert worker.ledger.open_batches(TABLE) == [again]


def test_times_come_back_in_utc_whatever_zone_they_were_given_in(worker: Worker) -> None:
    worker.clock.now = datetime(2026, 11, 1, 12, 15, 0, 123456, timezone(timedelta(hours=2)))
    worker.register(file("a.csv"))
    batch = worker.open(file("a.csv"))
    found = worker.ledger.open_batches(TABLE)[0]
    assert found.as_of == batch.as_of == datetime(2026, 11, 1, 10, 15, 0, 123456, UTC)
    assert found.as_of.utcoffset() == timedelta(0)
    assert batch.id.startswith("20261101T101500Z-")


def test_sequences_grow_per_table_and_past_the_tables_own(worker: Worker) -> None:
    worker.register(*(file(f"{n}.csv") for n in range(4)))
    assert worker.ledger.last_sequence(TABLE) == 0
    found = [
        worker.open(file(f"{n}.csv"), sequence_above=above).sequence for n, above in enumerate((0, 0, 9, 3))
    ]
    assert found == [1, 2, 10, 11]
    assert worker.ledger.last_sequence(TABLE) == 11
    assert worker.ledger.last_sequence("other") == 0
    assert [b.sequence for b in worker.ledger.open_batches(TABLE)] == found


def test_a_failed_batch_leaves_its_number_to_the_next(worker: Worker) -> None:
    """So that a late commit of the one and the commit of the other exclude each other."""
    worker.load(file("a.csv"))
    failed = worker.fail(file("b.csv"))
    again = worker.open(file("b.csv"))
    assert (failed.sequence, again.sequence) == (2, 2)


def test_a_commit_is_recorded_once(worker: Worker) -> None:
    worker.register(file("a.csv"))
    batch = worker.open(file("a.csv"))
    worker.commit(batch)
    worker.clock.forward(10)
    worker.ledger.commit_batch(worker.lease, batch.id, Receipt(**{**vars(receipt(batch)), "version": "18"}))
    (record,) = worker.ledger.committed_batches(TABLE)
    assert record.receipt == receipt(batch)
    assert record.finished_at == worker.clock.now - timedelta(seconds=10)
    assert worker.counts == {"COMMITTED": 1}
    assert worker.ledger.open_batches(TABLE) == []
    with pytest.raises(LedgerError, match="is COMMITTED and cannot be failed"):
        worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)
    with pytest.raises(LedgerError, match="is COMMITTED and cannot be retried"):
        worker.ledger.retry_batch(worker.lease, batch.id, worker.run_id)


def test_a_failed_batch_frees_its_files(worker: Worker) -> None:
    batch = worker.fail(file("a.csv"), file("b.csv"))
    assert {(w.state, w.attempts, w.error) for w in worker.ledger.waiting_contents(PIPELINE)} == {
        ("FAILED", 1, BROKEN.message)
    }
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)  # again: nothing more happens
    assert {w.attempts for w in worker.ledger.waiting_contents(PIPELINE)} == {1}
    with pytest.raises(LedgerError, match="is FAILED and cannot be committed"):
        worker.commit(batch)
    worker.fail(file("a.csv"))
    assert {w.content.name: w.attempts for w in worker.ledger.waiting_contents(PIPELINE)} == {
        "a.csv": 2,
        "b.csv": 1,
    }


def test_only_the_blamed_files_fail(worker: Worker) -> None:
    worker.fail(file("c.csv"))
    worker.register(file("a.csv"), file("b.csv"))
    batch = worker.open(file("a.csv"), file("b.csv"), file("c.csv"))
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN, blamed=["b.csv"])
    found = {w.content.name: (str(w.state), w.attempts) for w in worker.ledger.waiting_contents(PIPELINE)}
    assert found == {"a.csv": ("PENDING", 0), "b.csv": ("FAILED", 1), "c.csv": ("PENDING", 1)}
    released = worker.open(file("a.csv"))
    worker.ledger.fail_batch(worker.lease, released.id, BROKEN, blamed=())
    assert worker.waiting["a.csv"][0] == "PENDING"


def test_what_is_in_a_batch_cannot_be_in_another(worker: Worker) -> None:
    worker.register(file("a.csv"))
    batch = worker.open(file("a.csv"))
    with pytest.raises(LedgerError, match=f"PROCESSING in batch {batch.id}"):
        worker.open(file("a.csv"))
    worker.commit(batch)
    with pytest.raises(LedgerError, match=f"COMMITTED in batch {batch.id}"):
        worker.open(file("a.csv"))
    assert len(worker.ledger.history()) == 1


def test_unknown_batches_and_runs_are_refused(worker: Worker) -> None:
    with pytest.raises(LedgerError, match="not in the ledger"):
        worker.ledger.retry_batch(worker.lease, "nobody", worker.run_id)
    with pytest.raises(LedgerError, match="not in the ledger"):
        worker.ledger.finish_run("nobody", RunState.SUCCEEDED, {})


def lost(worker: Worker, batch_id: str = "20261031T000000Z-00000001", *names: str) -> Batch:
    """A batch as a marker tells of it."""
    files = tuple(file(name) for name in names)
    as_of = worker.clock.now - timedelta(days=1)
    return Batch(batch_id, PIPELINE, TABLE, Files(files), 7, as_of)


def test_a_lost_ledger_is_rebuilt_from_markers(worker: Worker) -> None:
    batch = lost(worker, "b7", "a.csv", "b.csv")
    for _ in range(2):
        worker.ledger.adopt(PIPELINE, TABLE, batch, receipt(batch, batch.as_of))
    assert worker.counts == {"COMMITTED": 2}
    assert worker.waiting == {}
    (record,) = worker.ledger.committed_batches(TABLE)
    assert (record.batch_id, record.files, record.sequence) == ("b7", 2, 7)
    assert (record.as_of, record.finished_at) == (batch.as_of, batch.as_of)
    assert worker.ledger.register(PIPELINE, TABLE, batch.members).new == ()
    assert worker.ledger.known_files(PIPELINE) == {f.name: f for f in batch.members}
    worker.register(file("c.csv"))
    assert worker.open(file("c.csv")).sequence == 8


def test_files_of_an_adopted_batch_may_turn_up_later(worker: Worker) -> None:
    for name in ("a.csv", "b.csv"):
        batch = lost(worker, "b7", name)
        worker.ledger.adopt(PIPELINE, TABLE, batch, receipt(batch))
    assert worker.ledger.committed_batches(TABLE)[0].files == 2
    hashes = [file("a.csv").content_hash, file("b.csv").content_hash]
    assert worker.ledger.batch_of_hashes(TABLE, hashes) == dict.fromkeys(hashes, "b7")


def test_a_waiting_content_that_was_applied_already_is_committed(worker: Worker) -> None:
    worker.fail(file("failed.csv"))
    worker.register(file("pending.csv"), file("copy.csv", "pending.csv"))
    batch = lost(worker, "b7", "failed.csv", "pending.csv")
    worker.ledger.adopt(PIPELINE, TABLE, batch, receipt(batch))
    assert worker.counts == {"COMMITTED": 2, "DUPLICATE": 1}
    assert worker.waiting == {}


def test_a_content_known_under_another_name_is_committed_there(worker: Worker) -> None:
    worker.register(file("renamed.csv", "a.csv"))
    batch = lost(worker, "b7", "a.csv")
    worker.ledger.adopt(PIPELINE, TABLE, batch, receipt(batch))
    assert worker.counts == {"COMMITTED": 1, "DUPLICATE": 1}


def test_the_marker_is_right_about_an_open_and_a_failed_batch(worker: Worker) -> None:
    worker.register(file("open.csv"), file("other.csv"))
    left_open = worker.open(file("open.csv"), file("other.csv"))
    worker.ledger.adopt(PIPELINE, TABLE, left_open, receipt(left_open))
    assert worker.ledger.open_batches(TABLE) == []
    failed = worker.fail(file("failed.csv"))
    worker.ledger.adopt(PIPELINE, TABLE, failed, receipt(failed))
    assert worker.counts == {"COMMITTED": 3}
    record = worker.ledger.history()[0]
    assert (record.batch_id, record.state, record.files, record.error) == (failed.id, "COMMITTED", 1, None)


def test_adopting_leaves_files_of_another_open_batch_alone(worker: Worker) -> None:
    worker.register(file("a.csv"))
    mine = worker.open(file("a.csv"))
    batch = lost(worker, "b7", "a.csv")
    worker.ledger.adopt(PIPELINE, TABLE, batch, receipt(batch))
    assert worker.ledger.open_batches(TABLE) == [mine]
    worker.commit(mine)
    assert worker.counts == {"COMMITTED": 1}


def test_the_summary_of_a_pipeline(worker: Worker) -> None:
    empty = worker.ledger.pipeline_summary(PIPELINE)
    assert (empty.files, empty.batches, empty.last_receipt, empty.last_error) == ({}, 0, None, None)
    assert empty.failed_files == ()

    batch = worker.load(file("a.csv"))
    worker.clock.forward(1)
    worker.fail(*(file(f"bad{n:02}.csv") for n in range(25)))
    worker.register(file("late.csv"))
    summary = worker.ledger.pipeline_summary(PIPELINE)
    assert summary.files == {"COMMITTED": 1, "FAILED": 25, "PENDING": 1}
    assert summary.batches == 1
    assert summary.last_receipt == receipt(batch)
    assert summary.last_error == BROKEN
    assert len(summary.failed_files) == 20
    assert summary.failed_files[0] == FailedFile("bad00.csv", 1, BROKEN.message)

    worker.clock.forward(1)
    worker.load(file("late.csv"))
    assert worker.ledger.pipeline_summary(PIPELINE).last_error is None


def test_history_is_newest_first(worker: Worker) -> None:
    first = worker.load(file("a.csv"), file("b.csv"))
    worker.clock.forward(1)
    second = worker.fail(file("c.csv"))
    worker.clock.forward(1)
    worker.register(file("d.csv"))
    third = worker.open(file("d.csv"))
    records = worker.ledger.history()
    assert [r.batch_id for r in records] == [third.id, second.id, first.id]
    assert records[2] == BatchRecord(
        batch_id=first.id,
        pipeline=PIPELINE,
        table="silver.orders",
        state="COMMITTED",
        sequence=1,
        attempts=1,
        files=2,
        as_of=first.as_of,
        finished_at=first.as_of,
        receipt=receipt(first),
        error=None,
    )
    assert (records[1].state, records[1].files, records[1].error) == ("FAILED", 1, BROKEN)
    assert (records[0].state, records[0].finished_at, records[0].receipt) == ("PROCESSING", None, None)
    assert [r.batch_id for r in worker.ledger.history(limit=1)] == [third.id]
    assert worker.ledger.history("other") == []
    assert [r.batch_id for r in worker.ledger.committed_batches(TABLE)] == [first.id]


def test_any_error_can_be_recorded(worker: Worker) -> None:
    facts: dict[str, object] = {
        "path": Path("a.csv"),
        "fraction": math.nan,
        "at": worker.clock.now,
        "raw": "nul \x00 and half a pair \udcff",
        "nested": {"n": [1, (2, None, True)]},
    }
    worker.register(file("a.csv"))
    batch = worker.open(file("a.csv"))
    worker.ledger.fail_batch(
        worker.lease, batch.id, Failure("TM301", "raw \x00 \udcff", "hint \x00", True, facts)
    )
    error = worker.ledger.history()[0].error
    assert error is not None
    assert (error.code, error.message, error.hint, error.retry_safe) == (
        "TM301",
        "raw \\x00 \\udcff",
        "hint \\x00",
        True,
    )
    assert error.facts["path"] == "a.csv"
    assert error.facts["fraction"] == "nan"
    assert error.facts["nested"] == {"n": [1, [2, None, True]]}
    assert worker.ledger.waiting_contents(PIPELINE)[0].error == "raw \\x00 \\udcff"


def test_check_leaves_nothing_behind(ledger: Ledger) -> None:
    from tallymark.ledger.schema import runs

    ledger.check()
    found = ledger._database.read(lambda tx: tx.execute(runs.select()).all())
    assert found == []


def test_undone_batches_are_not_committed_and_their_files_wait_again(worker: Worker) -> None:
    kept = worker.load(file("1.csv"))
    undone = [worker.load(file("2.csv"), file("3.csv")), worker.load(file("4.csv"))]
    worker.register(file("copy of 4.csv", "4.csv"))
    gone = Failure("TM508", "no longer there")
    assert worker.ledger.undo_batches(worker.lease, above_sequence=kept.sequence, error=gone) == undone
    assert set(worker.waiting) == {"2.csv", "3.csv", "4.csv"}
    assert [batch.batch_id for batch in worker.ledger.committed_batches(TABLE)] == [kept.id]
    last = worker.ledger.last_receipt(TABLE)
    assert last is not None and last.batch_id == kept.id
    assert worker.ledger.undo_batches(worker.lease, above_sequence=kept.sequence, error=gone) == []
    again = worker.open(file("2.csv"), file("3.csv"), file("4.csv"))
    assert again.sequence == undone[-1].sequence + 1
    worker.commit(again)
    assert worker.waiting == {}


def test_an_undone_content_whose_path_was_overwritten_goes_to_its_copy(worker: Worker) -> None:
    worker.load(file("a.csv", "old"))
    worker.register(file("b.csv", "old"))
    worker.register(file("a.csv", "new"))
    worker.ledger.undo_batches(worker.lease, above_sequence=0, error=Failure("TM508", "no longer there"))
    waiting = worker.ledger.waiting_contents(PIPELINE)
    assert {(entry.content.name, entry.content.content_hash) for entry in waiting} == {
        ("a.csv", "hash of new"),
        ("b.csv", "hash of old"),
    }
