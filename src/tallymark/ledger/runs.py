"""Who ran what, when and where."""

from __future__ import annotations

import secrets
from datetime import datetime

from tallymark.errors import LedgerError
from tallymark.ledger.database import Tx
from tallymark.ledger.facts import RunState
from tallymark.ledger.schema import runs


def new_id(now: datetime) -> str:
    """Sorts by time and reads well, such as 20261101T101500Z-9f3ac01b."""
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def start(tx: Tx, project: str, command: str, host: str, pid: int) -> str:
    run_id = new_id(tx.now)
    row = {"id": run_id, "project": project, "command": command, "host": host, "pid": pid}
    tx.execute(runs.insert().values(row | {"state": RunState.RUNNING, "started_at": tx.now}))
    return run_id


def finish(tx: Tx, run_id: str, state: RunState, summary: dict[str, object]) -> None:
    changed = tx.execute(
        runs.update().where(runs.c.id == run_id).values(state=state, finished_at=tx.now, summary=summary)
    )
    if not changed.rowcount:
        raise LedgerError(f"run {run_id} is not in the ledger", facts={"run_id": run_id})
