"""Registering files: each content once, in order, whatever happens to the paths."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tallymark.errors import FileChanged, LedgerError
from tallymark.ledger import Ledger, Registration
from tallymark.ledger.database import CHUNK
from tallymark.ledger.repeats import Repeats
from tallymark.model.batch import FrameRows, Pin, QuarantinedRows, QueryResult, SourceFile, Window
from tallymark.model.settings import RepeatedContent
from unit.ledger.ledger_setup import BROKEN, PIPELINE, TABLE, Worker, file


def test_new_files_wait_and_are_known(worker: Worker) -> None:
    a, b = file("a.csv", size=2**40, modified_ns=2**62), file("b.csv")
    assert worker.ledger.register(PIPELINE, TABLE, [a, b]) == Registration((a, b), ())
    assert worker.waiting == {"a.csv": ("PENDING", "a.csv"), "b.csv": ("PENDING", "b.csv")}
    assert worker.ledger.known_files(PIPELINE) == {"a.csv": a, "b.csv": b}
    assert worker.ledger.known_files("other") == {}
    assert worker.ledger.waiting_contents("other") == []


def test_the_first_in_the_given_order_is_the_original(worker: Worker) -> None:
    z, a = file("z.csv", "same"), file("a.csv", "same")
    assert worker.ledger.register(PIPELINE, TABLE, [z, a]) == Registration((z,), (("a.csv", "z.csv"),))
    late = file("late.csv", "same")
    assert worker.ledger.register(PIPELINE, TABLE, [late]) == Registration((), (("late.csv", "z.csv"),))
    assert worker.waiting == {"z.csv": ("PENDING", "same")}
    assert worker.counts == {"PENDING": 1, "DUPLICATE": 2}
    assert set(worker.ledger.known_files(PIPELINE)) == {"z.csv", "a.csv", "late.csv"}


def test_the_same_content_may_go_to_many_tables(ledger: Ledger) -> None:
    a = file("a.csv")
    ledger.register("one", "table one", [a])
    assert ledger.register("two", "table two", [a]) == Registration((a,), ())


def test_two_pipelines_into_one_table_load_a_content_once(ledger: Ledger) -> None:
    ledger.register("one", TABLE, [file("a.csv")])
    assert ledger.register("two", TABLE, [file("a.csv")]) == Registration((), (("a.csv", "a.csv"),))
    assert set(ledger.known_files("two")) == {"a.csv"}


@pytest.mark.parametrize("content", ["a.csv", "same"])
def test_a_touched_file_is_neither_new_nor_duplicate(worker: Worker, content: str) -> None:
    worker.register(file("first.csv", "same"), file("a.csv", content))
    touched = file("a.csv", content, size=11, modified_ns=99)
    before = worker.counts
    assert worker.ledger.register(PIPELINE, TABLE, [touched]) == Registration((), ())
    assert worker.ledger.known_files(PIPELINE)["a.csv"] == touched
    assert worker.counts == before


def test_new_content_under_a_loaded_path_is_loaded_too(worker: Worker) -> None:
    worker.load(file("a.csv", "old"))
    new = file("a.csv", "new")
    assert worker.ledger.register(PIPELINE, TABLE, [new]).new == (new,)
    assert worker.waiting == {"a.csv": ("PENDING", "new")}
    assert worker.counts == {"COMMITTED": 1, "PENDING": 1}
    assert worker.ledger.known_files(PIPELINE) == {"a.csv": new}


def test_content_that_was_never_loaded_goes_with_its_path(worker: Worker) -> None:
    worker.register(file("a.csv", "old"))
    worker.fail(file("b.csv", "bad"))
    worker.register(file("a.csv", "new"), file("b.csv", "repaired"))
    assert worker.waiting == {"a.csv": ("PENDING", "new"), "b.csv": ("PENDING", "repaired")}
    assert worker.counts == {"PENDING": 2}
    assert worker.ledger.requeue(PIPELINE) == 0


def test_old_content_that_comes_back_is_not_loaded_again(worker: Worker) -> None:
    worker.load(file("a.csv", "old"))
    worker.register(file("a.csv", "new"))
    back = file("a.csv", "old", modified_ns=5)
    assert worker.ledger.register(PIPELINE, TABLE, [back]) == Registration((), ())
    assert worker.waiting == {}
    assert worker.ledger.known_files(PIPELINE) == {"a.csv": back}


def test_an_unloaded_content_that_comes_back_waits_again(worker: Worker) -> None:
    worker.register(file("a.csv", "old"))
    worker.register(file("a.csv", "new"))
    back = file("a.csv", "old")
    assert worker.ledger.register(PIPELINE, TABLE, [back]).new == (back,)
    assert worker.waiting == {"a.csv": ("PENDING", "old")}


def test_a_content_that_comes_back_after_another_took_it_over_is_a_duplicate(worker: Worker) -> None:
    worker.register(file("a.csv", "x"))
    worker.register(file("a.csv", "y"), file("b.csv", "x"))
    assert worker.waiting == {"a.csv": ("PENDING", "y"), "b.csv": ("PENDING", "x")}
    again = worker.ledger.register(PIPELINE, TABLE, [file("a.csv", "x")])
    assert again == Registration((), (("a.csv", "b.csv"),))
    assert worker.waiting == {"b.csv": ("PENDING", "x")}


def test_a_duplicate_inherits_when_the_original_is_overwritten(worker: Worker) -> None:
    worker.register(file("a.csv", "x"), file("b.csv", "x"), file("c.csv", "x"))
    worker.register(file("a.csv", "y"))
    assert worker.waiting == {"a.csv": ("PENDING", "y"), "b.csv": ("PENDING", "x")}
    assert worker.ledger.register(PIPELINE, TABLE, [file("d.csv", "x")]).duplicates == (("d.csv", "b.csv"),)


def test_a_duplicate_inherits_when_the_original_vanishes(worker: Worker) -> None:
    worker.register(file("a.csv", "x"), file("b.csv", "x"))
    worker.ledger.forget_vanished(PIPELINE, ["a.csv"])
    assert worker.waiting == {"b.csv": ("PENDING", "x")}


def test_a_duplicate_inherits_when_the_original_was_overwritten_while_loading(worker: Worker) -> None:
    worker.register(file("a.csv", "x"))
    batch = worker.open(file("a.csv", "x"))
    worker.register(file("a.csv", "y"), file("b.csv", "x"))
    assert worker.waiting == {"a.csv": ("PENDING", "y")}
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)
    assert worker.waiting == {"a.csv": ("PENDING", "y"), "b.csv": ("PENDING", "x")}


def test_a_loaded_content_has_no_heir(worker: Worker) -> None:
    worker.load(file("a.csv", "x"))
    worker.register(file("b.csv", "x"))
    worker.register(file("a.csv", "y"))
    worker.ledger.forget_vanished(PIPELINE, ["a.csv", "b.csv"])
    assert worker.waiting == {}


def test_vanished_files_do_not_wait_but_stay_on_record(worker: Worker) -> None:
    worker.load(file("loaded.csv"))
    worker.fail(file("failed.csv"))
    worker.register(file("pending.csv"), file("kept.csv"))
    worker.ledger.forget_vanished(PIPELINE, ["loaded.csv", "failed.csv", "pending.csv", "never.csv"])
    assert worker.waiting == {"kept.csv": ("PENDING", "kept.csv")}
    assert worker.counts == {"COMMITTED": 1, "PENDING": 1}
    assert "loaded.csv" in worker.ledger.known_files(PIPELINE)
    # The record of a failure comes back with its file.
    worker.register(file("failed.csv"), file("pending.csv"))
    assert worker.waiting["failed.csv"] == ("FAILED", "failed.csv")
    assert worker.waiting["pending.csv"] == ("PENDING", "pending.csv")


def test_a_file_in_an_open_batch_does_not_vanish(worker: Worker) -> None:
    worker.register(file("a.csv"))
    batch = worker.open(file("a.csv"))
    worker.ledger.forget_vanished(PIPELINE, ["a.csv"])
    assert worker.ledger.open_batches(TABLE) == [batch]
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)
    assert worker.waiting == {"a.csv": ("FAILED", "a.csv")}


def test_a_pipeline_with_another_table_starts_anew_there(worker: Worker) -> None:
    a, b = file("a.csv"), file("b.csv")
    worker.load(a)
    worker.register(b)
    assert worker.ledger.known_files(PIPELINE, table_key="elsewhere") == {}
    assert worker.ledger.register(PIPELINE, "elsewhere", [a, b]).new == (a, b)
    assert worker.ledger.known_files(PIPELINE, table_key="elsewhere") == {"a.csv": a, "b.csv": b}
    assert len(worker.ledger.waiting_contents(PIPELINE)) == 2
    assert worker.ledger.waiting_contents(PIPELINE, table_key=TABLE) == []


def test_what_tells_whether_a_file_is_the_same(worker: Worker) -> None:
    worker.load(file("a.csv"))
    worker.register(file("b.csv", size=7, modified_ns=8), file("other.csv"))
    worker.fail(file("failed.csv"))
    paths = ["a.csv", "b.csv", "failed.csv", "new.csv"]
    known = {("a.csv", 10, 1), ("b.csv", 7, 8)}
    assert worker.ledger.known_stats(PIPELINE, TABLE, paths) == known
    assert worker.ledger.known_stats(PIPELINE, TABLE, [*paths, *map(str, range(3 * CHUNK))]) == known
    assert worker.ledger.known_stats(PIPELINE, "elsewhere", paths) == set()
    worker.register(file("b.csv", "changed", size=9))
    assert worker.ledger.known_stats(PIPELINE, TABLE, ["b.csv"]) == {("b.csv", 9, 1)}


def test_a_failed_file_that_is_registered_again(worker: Worker) -> None:
    """It may have been repaired with size and time kept; if not, it keeps its attempts."""
    worker.fail(file("a.csv"))
    worker.register(file("a.csv"))
    assert [(w.state, w.attempts) for w in worker.ledger.waiting_contents(PIPELINE)] == [("FAILED", 1)]
    worker.register(file("a.csv", "repaired"))
    assert worker.waiting == {"a.csv": ("PENDING", "repaired")}


def test_requeue_gives_failed_files_all_their_attempts(worker: Worker) -> None:
    worker.fail(file("a.csv"), file("b.csv"), file("c.csv"))
    failed = {w.content.name: (w.attempts, w.error) for w in worker.ledger.waiting_contents(PIPELINE)}
    assert failed["a.csv"] == (1, BROKEN.message)
    assert worker.ledger.requeue(PIPELINE, ["a.csv", "unknown.csv"]) == 1
    assert worker.ledger.requeue("other") == 0
    assert worker.waiting["a.csv"][0] == "PENDING"
    assert worker.waiting["b.csv"][0] == "FAILED"
    assert worker.ledger.requeue(PIPELINE) == 2
    assert {(w.attempts, w.error) for w in worker.ledger.waiting_contents(PIPELINE)} == {(0, "")}


def test_content_hashes_tell_their_batch_once_committed(worker: Worker) -> None:
    many = [file(f"{n}.csv") for n in range(1200)]
    worker.register(*many, file("open.csv"))
    batch = worker.open(*many)
    assert worker.ledger.batch_of_hashes(TABLE, [many[0].content_hash]) == {}
    worker.commit(batch)
    asked = [f.content_hash for f in many] + ["unknown", file("open.csv").content_hash]
    assert worker.ledger.batch_of_hashes(TABLE, asked) == {f.content_hash: batch.id for f in many}
    assert worker.ledger.batch_of_hashes("other", asked) == {}


def test_names_of_all_kinds_are_kept(worker: Worker) -> None:
    odd = [file(p, p) for p in ("s3://b/ü ñ%.csv", "a'b\"c;--.csv", "x\ty\n.csv", "日本/\U0001f600.csv")]
    worker.register(*odd)
    assert worker.ledger.known_files(PIPELINE) == {f.path: f for f in odd}


def test_a_name_that_is_not_unicode_is_refused_clearly(worker: Worker) -> None:
    with pytest.raises(LedgerError, match="not valid Unicode") as caught:
        worker.register(file("good.csv"), file("bad\udcff.csv"))
    assert "rename" in caught.value.hint
    assert worker.waiting == {}


def test_claiming_what_was_overwritten_meanwhile_is_refused(worker: Worker) -> None:
    worker.register(file("a.csv", "old"))
    worker.register(file("a.csv", "new"))
    with pytest.raises(FileChanged, match=r"a\.csv"):
        worker.open(file("a.csv", "old"))
    with pytest.raises(LedgerError, match="not registered"):
        worker.open(file("never.csv"))
    assert worker.ledger.open_batches(TABLE) == []


@pytest.mark.parametrize("rows", [QuarantinedRows("b1", 3, "hash"), FrameRows.of("today")])
def test_rows_without_a_file_are_registered_by_their_batch(
    worker: Worker, rows: QuarantinedRows | FrameRows
) -> None:
    batch = worker.open_contents(rows)
    assert worker.ledger.open_batches(TABLE) == [batch]
    assert worker.ledger.known_files(PIPELINE) == {}
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)
    assert worker.waiting == {}  # only the caller can bring them again
    again = worker.open_contents(rows)
    worker.commit(again)
    assert worker.ledger.batch_of_hashes(TABLE, [rows.content_hash]) == {rows.content_hash: again.id}
    assert worker.counts == {}  # they are no files
    with pytest.raises(LedgerError, match=f"COMMITTED in batch {again.id}"):
        worker.open_contents(rows)


def test_a_file_inherits_from_a_frame_that_failed(worker: Worker) -> None:
    batch = worker.open_contents(FrameRows("1", "hash of rows"))
    assert worker.ledger.register(PIPELINE, TABLE, [file("a.csv", "rows")]).duplicates == (
        ("a.csv", "frame:1"),
    )
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)
    assert worker.waiting == {"a.csv": ("PENDING", "rows")}


ZONE = SourceFile("/zone/a.csv", 3, 4, "h")
PINS = [
    Pin("code"),
    Pin("code", {"silver.orders": "7"}, {"zone": (ZONE,)}, refresh=True),
    Pin("code", {"silver.orders": "7"}, window=Window("day", "2026-01-01", None)),
]


@pytest.mark.parametrize("pin", PINS)
def test_the_result_of_a_query_keeps_its_pin(worker: Worker, pin: Pin) -> None:
    result = QueryResult.of(pin, 17)
    worker.register(result)
    assert [w.content for w in worker.ledger.waiting_contents(PIPELINE)] == [result]
    assert worker.ledger.is_offered(PIPELINE, TABLE, result)
    assert worker.ledger.known_files(PIPELINE) == {}
    batch = worker.open_contents(result)
    assert worker.ledger.open_batches(TABLE) == [batch]
    assert batch.contents == result
    assert worker.ledger.results(TABLE) == []
    assert worker.ledger.results(TABLE, with_open=True) == [result]
    worker.commit(batch)
    assert worker.ledger.results(TABLE) == [result]
    assert worker.ledger.last_result(TABLE) == (result if result.is_whole else None)
    assert worker.counts == {"COMMITTED": 1}


def test_a_query_that_failed_is_offered_again_by_its_source_only(worker: Worker) -> None:
    result = QueryResult.of(PINS[0], 17)
    worker.register(result)
    batch = worker.open_contents(result)
    worker.ledger.fail_batch(worker.lease, batch.id, BROKEN)
    assert worker.ledger.waiting_contents(PIPELINE) == []
    worker.register(result)
    assert [(w.content, w.attempts) for w in worker.ledger.waiting_contents(PIPELINE)] == [(result, 1)]


def many_files(number: int) -> list[SourceFile]:
    return [SourceFile(f"/landing/orders/2026/11/{n:08d}.csv", n, n, f"{n:064x}") for n in range(number)]


@pytest.mark.slow
def test_ten_thousand_files_are_registered_quickly(ledger: Ledger) -> None:
    files = many_files(10_000)
    started = time.process_time()
    assert len(ledger.register(PIPELINE, TABLE, files).new) == 10_000
    assert time.process_time() - started < 2
    started = time.process_time()
    touched = [replace(f, modified_ns=-1) for f in files]
    assert ledger.register(PIPELINE, TABLE, touched) == Registration((), ())
    assert time.process_time() - started < 2


@pytest.mark.slow
def test_a_hundred_thousand_known_files_are_read_quickly(ledger: Ledger) -> None:
    files = many_files(20_000 if "postgres" in repr(ledger) else 100_000)
    ledger.register(PIPELINE, TABLE, files)
    started = time.process_time()
    known = ledger.known_files(PIPELINE)
    seconds = time.process_time() - started
    assert known == {f.path: f for f in files}
    assert seconds < 1.5


APPLY = Repeats(RepeatedContent.APPLY)


def returned(worker: Worker, *files: SourceFile, repeats: Repeats = APPLY) -> list[tuple[str, int]]:
    """The new deliveries among these files, with their numbers."""
    new = worker.ledger.register(PIPELINE, TABLE, files, repeats).new
    return [(content.name, content.returned) for content in new if isinstance(content, SourceFile)]


def test_a_content_that_comes_after_another_one_returns(worker: Worker) -> None:
    a, b = file("1.csv", "a"), file("2.csv", "b")
    assert returned(worker, a, b) == [("1.csv", 0), ("2.csv", 0)]
    assert returned(worker, a, b, file("2b.csv", "b"), file("3.csv", "a")) == [("3.csv", 1)]
    assert returned(worker, a, b, file("3.csv", "a"), file("4.csv", "a")) == []
    assert returned(worker, file("5.csv", "b"), file("6.csv", "a")) == [("5.csv", 1), ("6.csv", 2)]
    hashes = {one.identity for one in (a, replace(a, returned=1), replace(a, returned=2))}
    assert len(hashes) == 3
    assert {entry.content.identity for entry in worker.ledger.waiting_contents(PIPELINE)} >= hashes


def test_a_repeat_behind_a_file_that_cannot_be_read_may_be_a_state_that_returns(worker: Worker) -> None:
    assert returned(worker, file("1.csv", "a")) == [("1.csv", 0)]
    unread = replace(APPLY, unread=("2.csv",))
    assert returned(worker, file("3.csv", "a"), repeats=unread) == [("3.csv", 1)]


def test_a_repeat_that_is_older_than_what_waits_is_no_return(worker: Worker) -> None:
    returned(worker, file("4.csv", "b"), file("5.csv", "a"))
    assert returned(worker, file("3.csv", "a")) == []


def test_files_that_make_one_state_do_not_return_while_they_wait(worker: Worker) -> None:
    files = [file("1.csv", "a"), file("2.csv", "b"), file("3.csv", "a")]
    assert returned(worker, *files, repeats=replace(APPLY, is_grouped=True)) == [("1.csv", 0), ("2.csv", 0)]
