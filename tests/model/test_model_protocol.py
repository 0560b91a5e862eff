"""The protocol as a state machine, explored by generated schedules: workers, crashes, pauses, lost answers, two
tables, a handful of files. The workers run the real flow; see `model_world` for what must hold.

TALLYMARK_EXAMPLES=5000 explores more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from model.gated_worker import Order, Worker
from model.model_world import ENDINGS, LOG, STATE, WHOLE, Work, World
from tallymark.flow.lease import LEASE_SECONDS
from tallymark.flow.recover import recover_pipeline, replay_pipeline
from tallymark.flow.run import run_pipeline

EXAMPLES = int(os.environ.get("TALLYMARK_EXAMPLES", "20"))
STEPS = 16
MOST_FILES = 8
MOST_WORKERS = 3
MOST_LEDGERS = 3
# Where the protocol is most vulnerable: a schedule gets there at once instead of by luck.
GATES = ["register", "forget_vanished", "acquire_lease", "markers", "create_batch", "renew_lease"]
GATES += ["quarantine", "commit", "commit", "commit_batch", "commit_batch", "release_lease"]


@dataclass(frozen=True)
class FileLands:
    ending: str
    key: str
    copy_of: int | None  # the same content under another name
    bad: int = 0  # rows


@dataclass(frozen=True)
class FileVanishes:
    number: int


@dataclass(frozen=True)
class Run:
    new_file: FileLands | None  # right before it, so that there is something to do
    pipeline: str
    pause_at: str | None
    then: Order | None  # None: stays there
    leases_run_out_first: bool


@dataclass(frozen=True)
class Recover:
    pipeline: str


@dataclass(frozen=True)
class Replay:
    pipeline: str
    pause_at: str | None
    then: Order


@dataclass(frozen=True)
class GoOn:
    worker: int
    order: Order
    until: str | None  # None: a single step


@dataclass(frozen=True)
class TakenForDead:
    """Two machines of one name."""

    worker: int


@dataclass(frozen=True)
class RunIsCancelled:
    worker: int


@dataclass(frozen=True)
class ClockJumps:
    seconds: float


@dataclass(frozen=True)
class SomebodyElseWrites:
    table: str


@dataclass(frozen=True)
class LedgerIsLost:
    pass


@dataclass(frozen=True)
class TableIsRestored:
    """Not under a worker's hands: see test_a_restore_while_a_worker_is_at_its_commit."""

    table: str
    undone: int
    backup: bool


@dataclass(frozen=True)
class PowerIsCut:
    """Of each part, so many of the last states are gone."""

    log: int
    copies: int
    ledger: int


pipelines = st.sampled_from([STATE, STATE, LOG, WHOLE])
workers = st.integers(0, MOST_WORKERS - 1)
gates = st.sampled_from(GATES)
often = st.sampled_from([True, True, True, False])
lands = st.builds(
    FileLands,
    st.sampled_from([*ENDINGS, "b", "s", "w"]),
    st.sampled_from("kq"),
    st.sampled_from([None, None, None, 1, 2]),
    st.sampled_from([0, 1, 2]),
)
arrives = st.sampled_from([True, True, False]).flatmap(lambda new: lands if new else st.none())
whole = st.builds(Run, arrives, pipelines, st.none(), st.just(Order.GO), often)
paused = st.builds(Run, arrives, pipelines, gates, st.none(), often)
disturbed = st.builds(Run, arrives, pipelines, gates, st.sampled_from([*Order, Order.CRASH]), often)
woken = st.builds(GoOn, workers, st.sampled_from([Order.GO, *Order]), st.none() | gates | st.just("end"))
rare = (
    st.builds(Recover, pipelines)
    | st.builds(Replay, pipelines, st.none() | gates, st.sampled_from(Order))
    | st.builds(TakenForDead, workers)
    | st.builds(RunIsCancelled, workers)
    | st.builds(
        ClockJumps, st.sampled_from([1, 0.5 * LEASE_SECONDS, -0.5 * LEASE_SECONDS, -5 * LEASE_SECONDS])
    )
    | st.builds(SomebodyElseWrites, st.sampled_from([STATE, LOG]))
    | st.builds(LedgerIsLost)
    | st.builds(FileVanishes, st.integers(1, MOST_FILES))
    | st.builds(TableIsRestored, st.sampled_from([STATE, STATE, LOG]), st.integers(1, 2), st.booleans())
    | st.builds(PowerIsCut, st.integers(0, 2), st.integers(0, 2), st.sampled_from([0, 0, 1, 2, 5]))
)
# Not a rule for each: hypothesis switches most rules off in most examples, and nothing much happens then.
kinds = st.sampled_from([lands, whole, paused, paused, disturbed, disturbed, woken, woken, rare, rare])
events = kinds.flatmap(lambda kind: kind)


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(event=events)
    def then(self, event: object) -> None:
        world = self.world
        match event:
            case FileLands() if len(world.landed) < MOST_FILES:
                self.land(event)
            case FileVanishes(number) if number <= len(world.landed):
                world.vanish(number)
            case Run():
                self.run(event)
            case Recover(pipeline):
                self.start(pipeline, True, recover_pipeline).finish()
            case Replay(pipeline, gate, order):
                worker = self.start(pipeline, True, replay_pipeline)
                if gate:
                    worker.run_until(gate)
                worker.step(order)
                worker.finish()
            case GoOn(number, order, gate) if self.live:
                worker = self.worker(number)
                worker.step(order)
                if gate and not worker.done:
                    worker.run_until(gate)
            case TakenForDead(number) if self.live:
                world.believed_dead.add(self.worker(number).name)
            case RunIsCancelled(number) if self.live:
                self.worker(number).cancellation.cancel()
            case ClockJumps(seconds):
                world.pass_time(seconds)
            case SomebodyElseWrites(table):
                world.tables[table].foreign_commit()
            case LedgerIsLost() if len(world.ledgers) < MOST_LEDGERS:
                world.lose_ledger()
            case TableIsRestored(table, undone, backup) if not self.live:
                kept = max(0, len(world.tables[table].held) - undone)
                world.restore(table, kept, backup=backup)
            case PowerIsCut(log, copies, ledger) if len(world.ledgers) + bool(ledger) <= MOST_LEDGERS:
                world.cut_power(log=log, copies=copies, ledger=ledger)
            case _:  # nobody there to do it
                pass

    @invariant()
    def the_promise_holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        try:
            self.world.recover_and_run_to_the_end()
            self.world.let_the_sleepers_finish()
            self.world.recover_and_run_to_the_end()
            self.world.replay_and_expect_nothing_left()
        finally:
            self.world.close()

    def land(self, file: FileLands) -> None:
        known = file.copy_of and file.copy_of <= len(self.world.landed)
        self.world.land(file.ending, file.key, file.copy_of if known else None, file.bad)

    def run(self, event: Run) -> None:
        if event.new_file and len(self.world.landed) < MOST_FILES:
            self.land(event.new_file)
        if len(self.live) == MOST_WORKERS:
            return
        if event.pause_at is None and event.then is Order.GO:
            if event.leases_run_out_first:
                self.world.pass_time()
            self.world.load(event.pipeline)
            return
        worker = self.start(event.pipeline, event.leases_run_out_first)
        if event.pause_at:
            worker.run_until(event.pause_at)
        if event.then:
            worker.step(event.then)
            worker.finish()

    def start(self, pipeline: str, waited: bool, work: Work = run_pipeline) -> Worker:
        if waited:
            self.world.pass_time()
        return self.world.start(pipeline, work)

    @property
    def live(self) -> list[Worker]:
        return [worker for worker in self.world.workers if not worker.done]

    def worker(self, number: int) -> Worker:
        return self.live[number % len(self.live)]


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
