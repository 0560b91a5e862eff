"""Runs: who ran what, when and where, and how it ended.

A run cannot record the death of its own process. So the state of a run that has not ended is judged when it
is read, by its process and by the leases of that process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from tallymark.errors import LedgerError
from tallymark.ledger.database import Row, Tx, storable, to_json
from tallymark.ledger.schema import batches, leases, runs
from tallymark.model.report import Outcome, RunRecord, RunState

# (host, pid, start of the run) → whether that process still lives; None if it cannot be known here
ProcessProbe = Callable[[str, int, datetime], bool | None]

_ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


def new_id(now: datetime) -> str:
    """Sorts by time and reads well, such as 20261101T101500Z-9f3ac01b."""
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def start(tx: Tx, project: str, command: str, host: str, pid: int, pipelines: Iterable[str] = ()) -> str:
    run_id = new_id(tx.now)
    row = {"id": run_id, "project": project, "command": command, "host": host, "pid": pid}
    row |= {"state": RunState.RUNNING, "started_at": tx.now, "summary": dict.fromkeys(pipelines)}
    tx.execute(runs.insert().values(row))
    return run_id


def finish(tx: Tx, run_id: str, state: RunState, outcomes: Mapping[str, Outcome | None]) -> None:
    if state not in _ENDED:
        raise ValueError(f"a run does not end as {state}")
    ended = {"state": state, "finished_at": tx.now, "summary": dict(outcomes)}
    if not tx.execute(runs.update().where(runs.c.id == run_id).values(ended)).rowcount:
        raise _no_such_run(run_id)


def listed(
    tx: Tx,
    limit: int,
    before: str | None,
    pipeline: str | None,
    state: RunState | None,
    is_alive: ProcessProbe,
) -> list[RunRecord]:
    """Newest first."""
    query = sa.select(runs).order_by(runs.c.started_at.desc(), runs.c.id.desc())
    if before is not None:
        cursor = _row(tx, before)
        query = query.where(
            sa.or_(
                runs.c.started_at < cursor.started_at,
                sa.and_(runs.c.started_at == cursor.started_at, runs.c.id < cursor.id),
            )
        )
    if pipeline is not None:
        query = query.where(sa.or_(_names(tx, pipeline), _has_batches_of(pipeline)))
    if state is not None:
        query = query.where(runs.c.state == (state if state in _ENDED else RunState.RUNNING))
    if state is None or state in _ENDED:
        query = query.limit(limit)  # otherwise the state is judged row by row, below
    found = _judged(tx, tx.execute(query).all(), is_alive)
    return list(islice((run for run in found if state in (None, run.state)), limit))


def one(tx: Tx, run_id: str, is_alive: ProcessProbe) -> RunRecord:
    [found] = _judged(tx, [_row(tx, run_id)], is_alive)
    return found


def _row(tx: Tx, run_id: str) -> Row:
    row = tx.execute(sa.select(runs).where(runs.c.id == run_id)).one_or_none()
    if row is None:
        raise _no_such_run(run_id)
    return row


def _names(tx: Tx, pipeline: str) -> sa.ColumnElement[bool]:
    """The summary is a JSON object with a key for each pipeline."""
    key = f"{to_json(storable(pipeline))}:"
    position = sa.func.strpos if tx.is_postgres else sa.func.instr
    return position(sa.cast(runs.c.summary, sa.Text), key) > 0


def _has_batches_of(pipeline: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(batches.c.run_id == runs.c.id, batches.c.pipeline == pipeline)


def _judged(tx: Tx, rows: Sequence[Row], is_alive: ProcessProbe) -> Iterator[RunRecord]:
    held = [] if all(row.state in _ENDED for row in rows) else _held_leases(tx)
    for row in rows:
        summary = row.summary or {}
        yield RunRecord(
            run_id=row.id,
            project=row.project,
            command=row.command,
            host=row.host,
            pid=row.pid,
            state=RunState(row.state) if row.state in _ENDED else _unfinished(row, held, tx.now, is_alive),
            started_at=row.started_at,
            finished_at=row.finished_at,
            outcomes={name: None if told is None else Outcome(told) for name, told in summary.items()},
        )


def _held_leases(tx: Tx) -> Sequence[Row]:
    return tx.execute(
        sa.select(leases.c.holder, leases.c.expires_at).where(leases.c.holder.is_not(None))
    ).all()


def _unfinished(run: Row, held: Sequence[Row], now: datetime, is_alive: ProcessProbe) -> RunState:
    """A lease is renewed for as long as its process works. So on another machine, a lease that lasts shows a
    process that lives, and one that was held in this run and has expired shows one that does not."""
    alive = is_alive(run.host, run.pid, run.started_at)
    if alive is not None:
        return RunState.RUNNING if alive else RunState.ABANDONED
    process = f"{run.host}:{run.pid}:"
    ends = [lease.expires_at for lease in held if lease.holder.startswith(process)]
    if any(end > now for end in ends):
        return RunState.RUNNING
    return RunState.ABANDONED if any(end > run.started_at for end in ends) else RunState.UNKNOWN


def _no_such_run(run_id: str) -> LedgerError:
    return LedgerError(f"run {run_id} is not in the ledger", facts={"run_id": run_id})
