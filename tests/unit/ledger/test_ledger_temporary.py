"""The ledger of a single call: empty, nobody else's, removed at the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tallymark.ledger import Ledger, open_ledger, reading_ledger, temporary_ledger
from unit.ledger.ledger_setup import PIPELINE, TABLE, file

CONTENT = [file("a.csv")]


def known(ledger: Ledger) -> set[str]:
    return set(ledger.known_files(PIPELINE))


def test_every_call_has_an_empty_one_and_leaves_nothing() -> None:
    with temporary_ledger() as first:
        first.register(PIPELINE, TABLE, CONTENT)
        assert known(first) == {"a.csv"}
        with temporary_ledger() as second:
            assert (second.place != first.place, known(second)) == (True, set())
    assert not Path(first.place).parent.exists()
    assert not Path(second.place).parent.exists()


def test_a_call_that_fails_leaves_nothing_either() -> None:
    with pytest.raises(ValueError, match="of the call"), temporary_ledger() as ledger:
        raise ValueError("of the call")
    assert not Path(ledger.place).parent.exists()


def test_threads_of_the_call_share_it() -> None:
    """The lease of a table is renewed by a thread of its own while the load writes."""
    files = [file(f"{number}.csv", str(number)) for number in range(40)]
    with temporary_ledger() as ledger, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: ledger.register(PIPELINE, TABLE, [one]), files))
        assert len(known(ledger)) == 40


def test_reading_makes_no_ledger_and_uses_an_open_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with reading_ledger(url, None) as empty:
        assert known(empty) == set()
    assert list(tmp_path.iterdir()) == []
    with open_ledger(url) as opened:
        opened.register(PIPELINE, TABLE, CONTENT)
        with reading_ledger(url, opened) as same:
            assert same is opened
        assert known(opened) == {"a.csv"}  # still open
    with reading_ledger(url, None) as reopened:
        assert known(reopened) == {"a.csv"}
