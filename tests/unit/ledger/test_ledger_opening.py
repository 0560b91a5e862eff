"""Opening a ledger: fresh, old, damaged, forbidden, far away; and no secret in what is said about it."""

from __future__ import annotations

import itertools
import os
import sqlite3
import stat
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tallymark.errors import LedgerError
from tallymark.ledger import Ledger, migrations, open_ledger
from tallymark.ledger.database import parse_address
from tallymark.ledger.schema import HEAD, VERSION_TABLE, metadata
from unit.ledger.ledger_setup import PIPELINE, PROCESSES, TABLE, file

SECRET = "s3cr3t"


def in_the_ledger(ledger: Ledger, look: Callable[[sa.Connection], Any]) -> Any:
    return ledger._database.read(lambda tx: look(tx.connection))


def test_a_fresh_ledger_is_made_with_its_folder_and_kept(url: str) -> None:
    with open_ledger(url) as ledger:
        ledger.register(PIPELINE, TABLE, [file("a.csv")])
    with open_ledger(url) as ledger:
        assert set(ledger.known_files(PIPELINE)) == {"a.csv"}


def test_sqlite_is_durable_and_lets_readers_read(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        pragma = in_the_ledger(
            ledger, lambda c: {name: c.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}
        )
    assert pragma == {"journal_mode": "wal", "synchronous": 3, "foreign_keys": 1, "busy_timeout": 60_000}


def test_migrations_make_what_the_code_declares(ledger: Ledger) -> None:
    def differences(connection: sa.Connection) -> Any:
        return compare_metadata(
            MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}), metadata
        )

    assert in_the_ledger(ledger, differences) == []
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_heads() == [HEAD]


def test_migrations_make_the_same_indexes_to_the_letter(url: str, ledger: Ledger) -> None:
    """Alembic's comparison does not look at the conditions of partial indexes, which carry the promise."""
    on_sqlite = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    on_postgres = (
        "SELECT indexname, replace(indexdef, schemaname || '.', '') FROM pg_indexes"
        " WHERE schemaname = current_schema()"
    )
    query = on_sqlite if url.startswith("sqlite") else on_postgres

    def indexes(connection: sa.Connection) -> dict[str, str]:
        found = connection.exec_driver_sql(query)
        return {name: " ".join(text.split()) for name, text in found if VERSION_TABLE not in name}

    migrated = in_the_ledger(ledger, indexes)
    assert "tallymark_files_content" in migrated

    def remade(tx: Any) -> dict[str, str]:
        metadata.drop_all(tx.connection)
        metadata.create_all(tx.connection)
        return indexes(tx.connection)

    assert ledger._database.write(remade) == migrated


def test_a_ledger_of_a_newer_version_is_left_alone(url: str) -> None:
    with open_ledger(url) as ledger:
        newer = sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        ledger._database.write(lambda tx: tx.execute(newer))
        with pytest.raises(LedgerError, match="9999"):
            ledger.check()
    with pytest.raises(LedgerError, match="9999") as caught:
        open_ledger(url)
    assert "upgrade" in caught.value.hint


def test_a_killed_upgrade_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    calls = itertools.count()
    make = op.create_index

    def breaks(*args: Any, **kwargs: Any) -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt
        make(*args, **kwargs)

    monkeypatch.setattr(op, "create_index", breaks)
    with pytest.raises(KeyboardInterrupt):
        open_ledger(url)
    monkeypatch.undo()
    with open_ledger(url) as ledger:
        ledger.check()


# What cannot be opened


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("not a database\n" * 100)
    with pytest.raises(LedgerError, match="is not a SQLite database") as caught:
        open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    assert "move the file away" in caught.value.hint
    assert str(tmp_path / "ledger.db") in caught.value.message
    assert (tmp_path / "ledger.db").read_text().startswith("not a database")


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        ledger.register(PIPELINE, TABLE, [file(f"{n}.csv") for n in range(5000)])
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="is damaged"), open_ledger(f"sqlite:///{path}") as ledger:
        ledger.register(PIPELINE, TABLE, [file(f"{n}.csv") for n in range(5000, 9000)])


def test_a_folder_where_the_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(LedgerError, match="cannot be opened"):
        open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(LedgerError, match="cannot be made") as caught:
        open_ledger(f"sqlite:///{tmp_path}/state/ledger.db")
    assert caught.value.hint


def _as_somebody_else(url: str, answer: Any) -> None:
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        with open_ledger(url) as ledger:
            ledger.register(PIPELINE, TABLE, [file("b.csv")])
        answer.put("done")
    except LedgerError as error:
        answer.put(str(error))


def _answer_of_somebody_else(url: str) -> str:
    answer = PROCESSES.Queue()
    process = PROCESSES.Process(target=_as_somebody_else, args=(url, answer))
    process.start()
    text = answer.get(timeout=60)
    process.join()
    return str(text)


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """Pytest's folders are closed to other users."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    return tmp_path


@pytest.mark.parametrize("name", ["ledger.db", "new/ledger.db"])
def test_an_unwritable_folder(open_path: Path, name: str) -> None:
    closed = open_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    text = _answer_of_somebody_else(f"sqlite:///{closed}/{name}")
    assert "cannot be" in text
    assert "write" in text
    assert "→" in text


def test_a_ledger_that_may_only_be_read(open_path: Path) -> None:
    with open_ledger(f"sqlite:///{open_path}/ledger.db") as ledger:
        ledger.register(PIPELINE, TABLE, [file("a.csv")])
    for path in (open_path / "ledger.db", open_path):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    text = _answer_of_somebody_else(f"sqlite:///{open_path}/ledger.db")
    open_path.chmod(0o755)
    assert "is read-only" in text or "cannot be opened" in text
    assert "→" in text


def test_a_ledger_that_another_process_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallymark.ledger.database.BUSY_SECONDS", 0.2)
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        other = sqlite3.connect(tmp_path / "ledger.db")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="is locked by another process"):
            ledger.register(PIPELINE, TABLE, [file("a.csv")])
        assert ledger.known_files(PIPELINE) == {}  # reading goes on
        other.close()
        ledger.register(PIPELINE, TABLE, [file("a.csv")])


# PostgreSQL


@pytest.fixture(scope="session")
def guarded(postgres: Callable[[], str]) -> str:
    """A URL whose user needs a password, and may not create tables."""
    with psycopg.connect(postgres(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE clerk LOGIN PASSWORD '{SECRET}'")
        (path,) = connection.execute("SHOW hba_file").fetchone() or ("",)
        Path(path).write_text("local all clerk scram-sha-256\n" + Path(path).read_text())
        connection.execute("SELECT pg_reload_conf()")
        host = connection.info.host
    return f"postgresql://clerk:{SECRET}@/postgres?host={host}"


def refused(url: str) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        open_ledger(url)
    error = caught.value
    everything = "".join(traceback.format_exception(error)) + repr(error) + repr(error.as_dict())
    assert SECRET not in everything
    assert "wr0ng" not in everything
    assert error.hint
    return error


def test_a_wrong_password(guarded: str) -> None:
    error = refused(guarded.replace(SECRET, "wr0ng"))
    assert "refuses the password" in error.message
    assert "clerk@" in error.message


def test_a_password_in_the_query(guarded: str) -> None:
    base = guarded.replace(f":{SECRET}", "")
    assert "refuses the password" in refused(f"{base}&password=wr0ng").message
    assert "CREATE" in refused(f"{base}&password={SECRET}").hint


def test_a_missing_password(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    assert "asks for a password" in refused(guarded.replace(f":{SECRET}", "")).message


def test_a_user_without_rights(guarded: str) -> None:
    assert "not create or write tables" in refused(guarded).message


def test_a_database_that_is_not_there(guarded: str) -> None:
    assert "no such database" in refused(guarded.replace("/postgres?", "/nowhere?")).message


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgresql://u:{SECRET}@127.0.0.1:9/db", "cannot be reached"),
        (f"postgres://u:{SECRET}@127.0.0.1:9/db", "cannot be reached"),
        (f"postgresql+psycopg://u:{SECRET}@127.0.0.1:9/db", "cannot be reached"),
        (f"postgresql://u:{SECRET}@no-such-host.invalid/db", "cannot be found by its host name"),
        (f"postgresql://u:pa@{SECRET}@127.0.0.1/db", "cannot be split"),
        (f"postgresql://u:pa/{SECRET}@127.0.0.1/db", ""),
        (f"postgresql://u:pa:{SECRET}@127.0.0.1:{SECRET}/db", "not a database URL"),
        (f"mysql://u:{SECRET}@h/db", "cannot be kept in mysql"),
        (SECRET, "not a database URL"),
        ("", "not a database URL"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
    ],
)
def test_addresses_that_lead_nowhere(url: str, said: str) -> None:
    assert said in refused(url).message


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "tallymark[postgres]" in refused(f"postgresql://u:{SECRET}@h/db").hint


def test_a_driver_that_repeats_the_password_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f"connection failed: host=h user=u password={SECRET}")

    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    monkeypatch.setattr(psycopg, "connect", connect)
    assert "password=***" in refused(f"postgresql://u:{SECRET}@h/db").message


def test_a_ledger_shows_where_it_is_but_no_password(guarded: str) -> None:
    address = parse_address(guarded + "&sslpassword=wr0ng")
    assert SECRET not in repr(address)
    assert address.place.startswith("postgresql://clerk@")
    assert SECRET not in address.place
    assert "wr0ng" not in address.place
    assert address.redact(f"a {SECRET} wr0ng b") == "a *** *** b"


def test_a_server_that_was_restarted_is_connected_to_again(postgres: Callable[[], str]) -> None:
    url = postgres()
    with open_ledger(url) as ledger, psycopg.connect(url, autocommit=True) as other:
        ledger.register(PIPELINE, TABLE, [file("a.csv")])
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tallymark'"
        )
        assert set(ledger.known_files(PIPELINE)) == {"a.csv"}
