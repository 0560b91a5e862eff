"""Several processes and threads at once, on real databases."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tallymark.errors import LeaseHeld, LedgerError
from tallymark.ledger import Ledger, Registration, open_ledger
from tallymark.ledger.contents import register
from tallymark.ledger.database import Tx
from tallymark.ledger.schema import HOLDS_CONTENT, contents
from tallymark.model.batch import SourceFile
from unit.ledger.ledger_setup import PIPELINE, PROCESSES, TABLE, file


def in_processes(work: Callable[..., Any], *arguments: tuple[Any, ...]) -> list[Any]:
    """All start together: the barrier is behind the imports."""
    barrier, answers = PROCESSES.Barrier(len(arguments)), PROCESSES.Queue()
    processes = [PROCESSES.Process(target=_answer, args=(work, barrier, answers, args)) for args in arguments]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    errors = [text for kind, text in found if kind == "error"]
    assert not errors, errors
    return [value for _, value in found]


def _answer(work: Callable[..., Any], barrier: Any, answers: Any, arguments: tuple[Any, ...]) -> None:
    barrier.wait(timeout=100)
    try:
        answers.put(("value", work(*arguments)))
    except Exception as error:
        answers.put(("error", f"{type(error).__name__}: {error}"))


def open_and_write(url: str, name: str) -> int:
    with open_ledger(url) as ledger:
        return len(ledger.register(PIPELINE, TABLE, [file(name)]).new)


def register_same(url: str, prefix: str, backwards: bool) -> tuple[int, int]:
    given = [file(f"{prefix}{n}.csv", f"content {n}") for n in range(500)]
    with open_ledger(url) as ledger:
        done = ledger.register(PIPELINE, TABLE, given[::-1] if backwards else given)
    return len(done.new), len(done.duplicates)


def take_lease(url: str, holder: str) -> int | None:
    with open_ledger(url) as ledger:
        try:
            return ledger.acquire_lease(TABLE, holder, 600).fence
        except LeaseHeld:
            return None


def test_processes_open_a_fresh_ledger_at_once(url: str) -> None:
    assert in_processes(open_and_write, *((url, f"{n}.csv") for n in range(4))) == [1] * 4
    with open_ledger(url) as ledger:
        assert len(ledger.waiting_contents(PIPELINE)) == 4


def test_threads_open_a_fresh_ledger_at_once(url: str) -> None:
    barrier = threading.Barrier(6)

    def work(number: int) -> int:
        barrier.wait()
        return open_and_write(url, f"{number}.csv")

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [1] * 6


def test_threads_open_different_fresh_ledgers_at_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(6)

    def work(number: int) -> int:
        barrier.wait()
        return open_and_write(f"sqlite:///{tmp_path}/{number}.db", "a.csv")

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [1] * 6


def test_processes_register_the_same_files_at_once(url: str) -> None:
    open_ledger(url).close()
    done = in_processes(register_same, (url, "", False), (url, "", True), (url, "", False))
    assert sorted(done) == [(0, 0), (0, 0), (500, 0)]
    with open_ledger(url) as ledger:
        assert ledger.pipeline_summary(PIPELINE).files == {"PENDING": 500}


def test_processes_register_the_same_contents_under_other_names_at_once(url: str) -> None:
    open_ledger(url).close()
    done = in_processes(register_same, (url, "a", False), (url, "b", True))
    assert Counter(done) == {(500, 0): 1, (0, 500): 1}
    with open_ledger(url) as ledger:
        assert ledger.pipeline_summary(PIPELINE).files == {"PENDING": 500, "DUPLICATE": 500}
        held = ledger._database.read(
            lambda tx: tx.execute(contents.select().where(sa.text(HOLDS_CONTENT))).all()
        )
    assert Counter(row.content_hash for row in held).most_common(1)[0][1] == 1


def test_the_database_itself_refuses_a_second_holder(url: str) -> None:
    """The locks make it rare; the index makes it impossible."""
    row = {"pipeline": "p", "table_key": TABLE, "kind": "files", "size": 1, "modified_ns": 1, "attempts": 0}
    row |= {"content_hash": "h", "state": "PENDING", "error": ""}
    with open_ledger(url) as ledger:

        def twice(tx: Any) -> None:
            for path in ("a.csv", "b.csv"):
                tx.execute(contents.insert().values(**row, path=path, registered_at=tx.now))

        with pytest.raises(LedgerError, match=r"(?i)unique"):
            ledger._database.write(twice)
        assert ledger.waiting_contents("p") == []


def test_one_process_gets_the_lease(url: str) -> None:
    open_ledger(url).close()
    fences = in_processes(take_lease, *((url, f"worker-{n}") for n in range(4)))
    assert sorted(fences, key=str) == [1, None, None, None]


def test_threads_share_one_ledger(url: str) -> None:
    with open_ledger(url) as ledger, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> int:
            lease = ledger.acquire_lease(f"table {number}", "w", 60)
            ledger.register(f"p{number}", f"table {number}", [file(f"{n}.csv") for n in range(100)])
            ledger.renew_lease(lease, 60)
            return len(ledger.waiting_contents(f"p{number}"))

        assert list(pool.map(work, range(16))) == [100] * 16


def held_open(ledger: Ledger, then: Callable[[], None], *given: SourceFile) -> None:
    """Registers in a transaction that stays open until `then`, in another thread, has had time to run into
    it; waits for both."""
    registered, other_ran_into_it = threading.Event(), threading.Event()

    def slowly(tx: Tx) -> None:
        register(tx, PIPELINE, TABLE, given)
        registered.set()
        other_ran_into_it.wait(3)

    def other() -> None:
        registered.wait(30)
        then()
        other_ran_into_it.set()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(ledger._database.write, slowly), pool.submit(other)]:
            done.result(timeout=60)


def test_a_copy_that_is_registered_while_its_original_vanishes_is_not_lost(url: str) -> None:
    """Unless one waits for the other, the copy becomes a duplicate of a record that waits no more."""
    with open_ledger(url) as ledger:
        ledger.register(PIPELINE, TABLE, [file("original.csv", "x")])
        held_open(ledger, lambda: ledger.forget_vanished(PIPELINE, ["original.csv"]), file("copy.csv", "x"))
        assert [w.content.name for w in ledger.waiting_contents(PIPELINE)] == ["copy.csv"]


def test_the_loser_of_a_race_sees_what_the_winner_wrote(
    postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the locks ever fail to keep two writers apart, the unique index and a second try do."""
    monkeypatch.setattr(Tx, "lock_tables", lambda *_: None)
    seen: list[Registration] = []
    with open_ledger(postgres()) as ledger:
        held_open(
            ledger,
            lambda: seen.append(ledger.register(PIPELINE, TABLE, [file("loser.csv", "x")])),
            file("winner.csv", "x"),
        )
        assert seen == [Registration((), (("loser.csv", "winner.csv"),))]
