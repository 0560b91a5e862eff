"""Ledgers of single calls are emptied and used again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_setup import PIPELINE, TABLE, file

from tallymark.ledger import Ledger, scratch, scratch_ledger

CONTENT = [file("a.csv")]


@pytest.fixture(autouse=True)
def none_idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scratch, "_idle", scratch._Idle())
    yield
    scratch._remove_idle()


def known(ledger: Ledger) -> set[str]:
    return set(ledger.known_files(PIPELINE))


def test_the_next_call_finds_it_empty() -> None:
    with scratch_ledger() as first:
        run = first.start_run("library", "merge", host="", pid=0)
        first.register(PIPELINE, TABLE, CONTENT)
        assert known(first) == {"a.csv"}
    with scratch_ledger() as second:
        assert (second.place, known(second)) == (first.place, set())
        assert second.start_run("library", "merge", host="", pid=0) != run
        second.register(PIPELINE, TABLE, CONTENT)


def test_so_it_does_after_a_call_that_failed() -> None:
    with pytest.raises(ValueError, match="of the call"), scratch_ledger() as first:
        first.register(PIPELINE, TABLE, CONTENT)
        raise ValueError("of the call")
    with scratch_ledger() as second:
        assert (second.place, known(second)) == (first.place, set())


def test_two_calls_at_once_have_one_each() -> None:
    met = threading.Barrier(2, timeout=60)
    places: list[str] = []

    def call() -> None:
        with scratch_ledger() as ledger:
            ledger.register(PIPELINE, TABLE, CONTENT)
            met.wait()
            places.append(ledger.place)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(places)) == 2


def test_one_that_cannot_be_emptied_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(scratch, "_empty", refuse)
        with scratch_ledger() as first:
            folder = first._database.address.file.parent
    assert not folder.exists()
    with scratch_ledger() as second:
        assert second.place != first.place


FORKED = """
import os
from tallymark.ledger import scratch_ledger
with scratch_ledger() as first: pass
child = os.fork()
with scratch_ledger() as second: is_own = second.place != first.place
if child == 0: os._exit(is_own)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1 and not is_own
"""
ONCE = """
from tallymark.ledger import scratch_ledger
with scratch_ledger() as ledger: assert ledger.known_files("p") == {}
"""


@pytest.mark.parametrize("code", [FORKED, ONCE], ids=["forked", "once"])
def test_a_process_leaves_nothing_but_what_is_not_its_own(tmp_path: Path, code: str) -> None:
    """A child that is forked makes a ledger of its own, and its end, without any cleaning up, leaves it."""
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True, timeout=120
    )
    assert len(list(tmp_path.iterdir())) == (1 if code == FORKED else 0)
