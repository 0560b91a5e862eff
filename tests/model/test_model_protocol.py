"""The protocol as a state machine, explored by generated schedules: workers, crashes, pauses, lost answers, two
tables, a handful of files. The workers run the real flow; see `model_world` for what must hold.

TALLYMARK_EXAMPLES=5000 explores more.
"""

from __future__ import annotations

import os

from gated_worker import Order, Worker
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model_world import ENDINGS, LOG, STATE, World

from tallymark.flow.lease import LEASE_SECONDS
from tallymark.flow.recover import recover_pipeline
from tallymark.flow.run import run_pipeline

EXAMPLES = int(os.environ.get("TALLYMARK_EXAMPLES", "25"))
MOST_FILES = 4
MOST_WORKERS = 3
FAULTS = [Order.REFUSE, Order.LOSE_ANSWER, Order.CRASH]
# Where the protocol is most vulnerable: a schedule gets there at once instead of by luck.
GATES = ["register", "forget_vanished", "acquire_lease", "open_batches", "applied", "create_batch"]
GATES += ["renew_lease", "commit", "commit_batch", "release_lease"]

endings = st.sampled_from([*ENDINGS, "b", "s"])
pipelines = st.sampled_from([STATE, STATE, LOG])
which = st.integers(0, MOST_WORKERS - 1)
some = st.integers(0, MOST_FILES)


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(ending=endings)
    def a_first_file(self, ending: str) -> None:
        self.world.land(ending)

    @precondition(lambda self: len(self.world.landed) < MOST_FILES)
    @rule(ending=endings, key=st.sampled_from("kq"))
    def a_file_lands(self, ending: str, key: str) -> None:
        self.world.land(ending, key)

    @precondition(lambda self: len(self.world.landed) < MOST_FILES)
    @rule(ending=endings, number=some)
    def the_same_content_lands_under_another_name(self, ending: str, number: int) -> None:
        self.world.land(ending, copy_of=number % len(self.world.landed) + 1)

    @precondition(lambda self: len(self.live) < MOST_WORKERS)
    @rule(pipeline=pipelines, gate=st.none() | st.sampled_from(GATES))
    def a_worker_starts(self, pipeline: str, gate: str | None) -> None:
        worker = self.world.start(pipeline)
        if gate and worker.gate != gate:
            worker.run_until(gate)

    @precondition(lambda self: len(self.live) < MOST_WORKERS)
    @rule(pipeline=pipelines)
    def somebody_recovers(self, pipeline: str) -> None:
        self.world.start(pipeline, recover_pipeline)

    @precondition(lambda self: self.live)
    @rule(number=which)
    def a_worker_takes_a_step(self, number: int) -> None:
        self.worker(number).step()

    @precondition(lambda self: self.live)
    @rule(number=which, gate=st.sampled_from(GATES))
    def a_worker_goes_on_until(self, number: int, gate: str) -> None:
        self.worker(number).run_until(gate)

    @precondition(lambda self: self.live)
    @rule(number=which)
    def a_worker_goes_on_to_its_end(self, number: int) -> None:
        self.worker(number).finish()

    @precondition(lambda self: self.live)
    @rule(number=which, fault=st.sampled_from(FAULTS))
    def something_happens_to_a_call(self, number: int, fault: Order) -> None:
        self.worker(number).step(fault)

    @rule()
    def leases_run_out(self) -> None:
        self.world.pass_time()

    @rule(seconds=st.sampled_from([1, LEASE_SECONDS / 2, -LEASE_SECONDS / 2, -5 * LEASE_SECONDS]))
    def the_clock_jumps(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.live)
    @rule(number=which)
    def a_worker_is_taken_for_dead(self, number: int) -> None:
        """Two machines of one name."""
        self.world.believed_dead.add(self.worker(number).name)

    @rule(table=st.sampled_from([STATE, LOG]))
    def somebody_else_writes(self, table: str) -> None:
        self.world.tables[table].foreign_commit()

    @precondition(lambda self: len(self.world.ledgers) < 3)
    @rule()
    def the_ledger_is_lost(self) -> None:
        self.world.lose_ledger()

    @precondition(lambda self: not self.live)
    @rule(table=st.sampled_from([STATE, LOG]), undone=st.integers(1, 2), backup=st.booleans())
    def the_table_is_restored(self, table: str, undone: int, backup: bool) -> None:
        """Not under a worker's hands: see test_a_restore_while_a_worker_is_at_its_commit."""
        kept = len(self.world.tables[table].held) - undone
        if kept >= 0:
            self.world.restore(table, kept, backup=backup)

    @invariant()
    def the_promise_holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        try:
            self.world.recover_and_run_to_the_end()
            self.world.let_the_sleepers_finish()
            self.world.recover_and_run_to_the_end()
        finally:
            self.world.close()

    @property
    def live(self) -> list[Worker]:
        return [worker for worker in self.world.workers if not worker.done]

    def worker(self, number: int) -> Worker:
        return self.live[number % len(self.live)]


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
