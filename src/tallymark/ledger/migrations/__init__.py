"""Brings a ledger's tables up to date when it is opened, with Alembic and without an ini file."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from tallymark.errors import LedgerError
from tallymark.ledger.database import Database, Tx
from tallymark.ledger.schema import HEAD, VERSION_TABLE

_ALEMBIC = threading.Lock()  # its `op` and `context` are global to the process
_LOCK = 0x7A11_3A4C  # PostgreSQL's advisory lock for migrations; SQLite's BEGIN IMMEDIATE is one already


def migrate(database: Database) -> None:
    """1. Read the version without any lock: a ledger is opened much more often than its schema changes.
    2. If it is old, take the locks, so that of two threads or processes on a new ledger one waits.
    3. Read it again and upgrade in the same transaction: a killed upgrade leaves nothing behind.
    """
    if database.read(version) != HEAD:
        # Always this lock before the database's: the other order could deadlock two threads.
        with _ALEMBIC:
            database.write(_upgrade)


def version(tx: Tx) -> str | None:
    if not sa.inspect(tx.connection).has_table(VERSION_TABLE):
        return None
    found = tx.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))).scalar()
    return None if found is None else str(found)


def _upgrade(tx: Tx) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    if tx.is_postgres:
        tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    config = Config(attributes={"connection": tx.connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))

    found = version(tx)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise LedgerError(
            f"the ledger has schema {found}, which this version of Tallymark does not know (it knows {HEAD})",
            hint="a newer Tallymark has opened it: upgrade this one with `pip install -U tallymark`",
            facts={"found": found, "known": HEAD},
        )
    command.upgrade(config, HEAD)
