"""The world of the model: files that land, tables, ledgers, a clock, workers; and what must always hold in it.

Everything that decides is the real code: ledger (a SQLite file), discovery and hashing (real small files),
lease, claim, run, load. Only the rows are not Spark's.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from model.delta_files import LoggedTable
from model.gated_worker import GatedLedger, Worker
from model.memory_destination import MemoryDestination, prepared_in_memory
from model.memory_quarantine import REPLAYED, Gate, MemoryBadRow, MemoryQuarantine
from model.memory_table import MemoryTable
from tallymark.config.pipeline_file import BatchConfig, SourceConfig
from tallymark.destinations.contract import TableMarkers
from tallymark.errors import CommitUnknown, Fenced, LeaseHeld, LeaseLost, LedgerError
from tallymark.flow import lease as lease_module
from tallymark.flow import load as load_module
from tallymark.flow import recover as recover_module
from tallymark.flow.bad_rows import judge
from tallymark.flow.claim import Claim, planned_batch
from tallymark.flow.job import Connections, Job, RunContext, Task
from tallymark.flow.lease import LEASE_SECONDS
from tallymark.flow.recover import recover_pipeline, replay_pipeline
from tallymark.flow.run import run_pipeline
from tallymark.ledger import Ledger, open_ledger
from tallymark.ledger.schema import metadata
from tallymark.model.batch import Batch, BatchState, QuarantinedRows, SourceFile
from tallymark.model.report import Event, Outcome, PipelineReport
from tallymark.model.settings import MergeSettings, Strategy

# Merged by key, in order; appended to, in any order; replaced by each file, so that a content can return.
STATE, LOG, WHOLE = "state", "log", "whole"
ENDINGS = {"s": (STATE,), "l": (LOG,), "b": (STATE, LOG), "w": (WHOLE,)}  # of a file's name: who takes it
SETTINGS = {
    STATE: MergeSettings(Strategy.UPSERT, ("key",)),
    LOG: MergeSettings(Strategy.APPEND_ONLY),
    WHOLE: MergeSettings(Strategy.FULL_REFRESH),
}
NEED_LEASE = {"create_batch", "retry_batch", "commit_batch", "fail_batch", "undo_batches", "renew_lease"}
MOST_ROUNDS = 6
HINDERED = {error.code for error in (Fenced, CommitUnknown, LedgerError, LeaseHeld, LeaseLost)}
_MEMORY = "/dev/shm"
_LONG_AGO = 946_684_800  # files are older than any clock that jumps

Work = Callable[[Job], PipelineReport]


class Broken(AssertionError):
    """The promise does not hold."""


@dataclass(frozen=True)
class Landed:
    number: int  # in the order of landing, which is the order of the names
    ending: str
    text: str
    vanished: bool = False

    @property
    def content(self) -> str:
        return sha256(self.text.encode()).hexdigest()


class World:
    def __init__(self) -> None:
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None  # where the ledger's fsync costs nothing
        self._folder = Path(tempfile.mkdtemp(prefix="tallymark-model-", dir=memory))
        self._landing = self._folder / "landing"
        self._landing.mkdir()
        self.now = datetime(2026, 11, 1, 10, tzinfo=UTC)
        self.landed: list[Landed] = []
        self.delta = LoggedTable(sees_moves=True, folder=self._folder / "warehouse" / STATE)
        self.tables: dict[str, MemoryTable] = {
            STATE: self.delta,
            LOG: MemoryTable(sees_moves=False),
            WHOLE: MemoryTable(sees_moves=True),
        }
        self.quarantines: dict[str, list[MemoryBadRow]] = {name: [] for name in self.tables}
        self.workers: list[Worker] = []
        self.ledgers: list[Ledger] = []
        self._ledger_states: list[bytes] = []  # of the newest ledger, as it was; now the last
        self.believed_dead: set[str] = set()
        self.restored = dict.fromkeys(self.tables, 0)
        self._granted: dict[tuple[int, str], tuple[int, str]] = {}  # ledger and table: last fence, its holder
        self._found_broken: list[str] = []
        self.events: list[Event] = []
        self._handed_out: dict[str, list[Batch]] = {}  # worker → its batches
        self._patched = pytest.MonkeyPatch()
        self._patched.setattr(load_module, "prepared_batch", prepared_in_memory)
        self._patched.setattr(recover_module, "read_quarantine", _read_in_memory)
        self._patched.setattr(lease_module, "died_here", lambda holder: holder in self.believed_dead)
        self._look_after_every_settle()
        self.lose_ledger()

    def close(self) -> None:
        for worker in self.workers:
            worker.crash()
        for ledger in self.ledgers:
            ledger.close()
        self._patched.undo()
        shutil.rmtree(self._folder)

    # What happens

    def land(self, ending: str = "b", key: str = "k", copy_of: int | None = None, bad: int = 0) -> None:
        number = len(self.landed) + 1
        words = " ".join(f"bad-{number}-{row}" for row in range(bad))
        text = self.landed[copy_of - 1].text if copy_of else f"{key} {number} {words}"
        if ending == "w":  # a state has no bad rows here: replaying them would be one more state
            text = " ".join(text.split()[:2])
        self.landed.append(Landed(number, ending, text))
        path = self._path(self.landed[-1])
        path.write_text(text)
        os.utime(path, (_LONG_AGO, _LONG_AGO))

    def vanish(self, number: int) -> None:
        """A file is removed, loaded or not."""
        file = self.landed[number - 1]
        self._path(file).unlink(missing_ok=True)
        self.landed[number - 1] = replace(file, vanished=True)

    def start(self, pipeline: str, work: Work = run_pipeline) -> Worker:
        worker = Worker(f"worker-{len(self.workers)}", pipeline)
        self.workers.append(worker)
        job = self._job(worker, len(self.ledgers) - 1)
        worker.start(lambda: work(job))
        return worker

    def load(self, pipeline: str, work: Work = run_pipeline) -> PipelineReport:
        """A worker that nothing happens to. Its first batch is the one that `plan` has shown before."""
        planned = self.planned(pipeline) if work is run_pipeline else None
        lost = self._claimed(pipeline, self.ledger) - set(self.tables[pipeline].contents)
        worker = self.start(pipeline, work)
        report = worker.finish()
        assert report is not None
        self._expect_the_truth(pipeline, report, lost, complete=work is run_pipeline)
        if work is run_pipeline and report.outcome is not Outcome.BUSY:
            self._expect_planned(planned, self._handed_out.get(worker.name, []))
        self.check()
        return report

    def planned(self, pipeline: str) -> Batch | None:
        """The batch that `plan` shows for the newest ledger."""
        watcher = Worker("plan", pipeline)
        job = self._job(watcher, len(self.ledgers) - 1)
        ungated = MemoryDestination(self.tables, lambda: self.now, 0, lambda name, call: call())
        quarantine = self._quarantine(pipeline, ungated.gate)
        looking = replace(job, ledger=self.ledger, connections=_connections(pipeline, ungated, quarantine))
        records = self._recorded()
        batch = planned_batch(looking).batch
        if self._recorded() != records:
            raise Broken("planning has changed the ledger")
        return batch

    def pass_time(self, seconds: float = 2 * LEASE_SECONDS) -> None:
        self.now += timedelta(seconds=seconds)

    def lose_ledger(self) -> None:
        """Workers that have the old one open go on with it."""
        self._open_ledger(_empty_ledger().read_bytes())

    def cut_power(self, *, log: int = 0, copies: int = 0, ledger: int = 0) -> None:
        """All workers die, and of the last states of each part, so many are gone: the commits of the Delta
        table, the copies of its markers, the ledger. So it is with a folder from one backup and a ledger from
        another."""
        for worker in self.workers:
            if not worker.done:
                worker.crash()
        self.remember()
        for table in self.restored:
            self.restored[table] += 1
        self.delta.copies_go_back(copies)
        self.delta.log_goes_back(log)
        if ledger:
            self._open_ledger(self._ledger_states[max(0, len(self._ledger_states) - 1 - ledger)])

    def remember(self) -> None:
        """What a power cut may bring back."""
        self.delta.remember_copies()
        with closing(sqlite3.connect(self._ledger_file)) as database:
            state = database.serialize()
        if not self._ledger_states or state != self._ledger_states[-1]:
            self._ledger_states.append(state)

    def _open_ledger(self, state: bytes) -> None:
        self.ledgers.append(cast(Ledger, None))
        self._ledger_file.write_bytes(state)
        self.ledgers[-1] = open_ledger(f"sqlite:///{self._ledger_file}", clock=lambda: self.now)
        self._ledger_states = [state]

    @property
    def _ledger_file(self) -> Path:
        return self._folder / f"ledger-{len(self.ledgers) - 1}.db"

    def restore(self, table: str, kept: int, *, backup: bool = False) -> None:
        """To the state after the first `kept` of the loads that it holds."""
        self.restored[table] += 1
        there = self.tables[table]
        (there.restore_backup if backup else there.restore)(kept)

    @property
    def ledger(self) -> Ledger:
        return self.ledgers[-1]

    # What must hold, always

    def _expect_planned(self, planned: Batch | None, handed_out: list[Batch]) -> None:
        loaded = handed_out[0] if handed_out else None
        if _essence(planned) != _essence(loaded):
            raise Broken(f"plan showed {_essence(planned)}, the run loaded {_essence(loaded)}")

    def _recorded(self) -> list[Any]:
        tables = [table for table in metadata.sorted_tables if table.name != "tallymark_runs"]
        return self.ledger._database.read(
            lambda tx: [row for table in tables for row in tx.execute(table.select()).all()]
        )

    def _expect_the_truth(
        self, pipeline: str, report: PipelineReport, lost: set[str], *, complete: bool
    ) -> None:
        """`lost`: what the ledger had as committed, and the table did not hold any more."""
        if report.outcome not in (Outcome.LOADED, Outcome.NOTHING_NEW):
            return
        if lost and not report.undone:
            raise Broken(f"{pipeline}: {len(lost)} contents are lost, and nobody says so")
        missing = self._wanted(pipeline) - set(self.tables[pipeline].contents)
        if missing and complete and report.outcome is Outcome.NOTHING_NEW:
            raise Broken(f"{pipeline}: nothing is new, and {len(missing)} contents are missing")

    def check(self) -> None:
        self.remember()
        for name, table in self.tables.items():
            self._nothing_twice(name, table)
            self._sequences_grow(name, table)
            self._one_commit_per_sequence(name, table)
            self._fences_grow(name, table)
            self._ledger_claims_nothing_false(name, table)
            self._bad_rows_of_commits_count_once(name, table)
        self._later_files_win(self.tables[STATE])
        self._no_surprise_ended_a_run()
        if self._found_broken:
            raise Broken("; ".join(self._found_broken))

    def _nothing_twice(self, name: str, table: MemoryTable) -> None:
        if len(set(table.contents)) < len(table.contents):
            raise Broken(f"{name}: a content was applied twice: {[row.number for row in table.rows]}")

    def _sequences_grow(self, name: str, table: MemoryTable) -> None:
        sequences = [commit.marker.sequence for commit in table.held]
        if sequences != sorted(set(sequences)):
            raise Broken(f"{name}: the sequences of its loads do not grow: {sequences}")

    def _one_commit_per_sequence(self, name: str, table: MemoryTable) -> None:
        sequences = [commit.marker.sequence for commit in table.accepted]
        if len(set(sequences)) < len(sequences):
            raise Broken(f"{name}: two commits had one sequence: {sequences}")

    def _later_files_win(self, table: MemoryTable) -> None:
        ranks = self._ranks(STATE)
        moved = {file.content for file in self.landed if file.vanished}  # its copy has another place
        applied = [ranks[c] for c in table.contents if c in ranks and c not in moved]  # replays have no rank
        if applied != sorted(applied):
            raise Broken(f"{STATE}: files were applied in the order {applied}")

    def _bad_rows_of_commits_count_once(
        self, name: str, table: MemoryTable, *, all_known: bool = False
    ) -> None:
        """Of every commit that the ledger knows: the bad rows that its own attempt found, each once, until a
        replay of them is known to be committed. After a restore, only a claim can know what the table lost."""
        shown: dict[str, list[MemoryBadRow]] = {}
        judged = judge(self.ledger, name, {row.attempt for row in self.quarantines[name]})
        for row in self.quarantines[name]:
            if row.attempt in judged.shown:
                shown.setdefault(row.attempt.batch_id, []).append(row)
        kept = {row.attempt.batch_id for row in self.quarantines[name]}
        bad = {file.content: file.text.split()[2:] for file in self.landed}
        markers = {commit.marker.batch_id: commit.marker for commit in table.held}
        fates = self.ledger.fates(name, {*markers, *shown})
        for batch_id, marker in markers.items():
            known = fates.get(batch_id)
            expected: list[str] = []
            if known is not None and known.state is BatchState.COMMITTED and not known.is_replayed:
                expected = [word for content in marker.content_hashes for word in bad.get(content, [])]
            if batch_id not in kept and QuarantinedRows.of(name, batch_id, 0).content_hash in table.contents:
                expected = []  # replayed long ago, and removed; a new ledger knows that once it has settled
            found = shown.pop(batch_id, [])
            if sorted(row.word for row in found) != sorted(expected):
                raise Broken(f"{name}: bad rows {found} of {batch_id} count, expected {expected}")
            if stray := [row for row in found if row.attempt.fence != marker.fence]:
                raise Broken(f"{name}: {stray} count, but attempt {marker.fence} committed")
            if all_known and known is None and any(bad.get(content) for content in marker.content_hashes):
                raise Broken(f"{name}: the ledger does not know {batch_id}, which has bad rows")
        if shown and (all_known or not self.restored[name]):
            raise Broken(f"{name}: bad rows {shown} count, but the table holds no commit of theirs")

    def _fences_grow(self, name: str, table: MemoryTable) -> None:
        for number in range(len(self.ledgers)):
            fences = [commit.marker.fence for commit in table.held if commit.ledger == number]
            if fences != sorted(fences):
                raise Broken(f"{name}: fences of ledger {number} went down: {fences}")

    def _watched(self, worker: Worker, number: int) -> Gate:
        """Fences only grow, and who has lost the lease writes nothing into the ledger."""
        lease = (number, worker.pipeline)

        def look(name: str, call: Callable[[], Any]) -> Any:
            answer = call()
            if name in ("create_batch", "retry_batch"):
                self._handed_out.setdefault(worker.name, []).append(answer)
            last, holder = self._granted.get(lease, (0, ""))
            if name in ("acquire_lease", "raise_fence"):
                if answer.fence <= last:
                    self._found_broken.append(f"{worker.pipeline}: fence {answer.fence} after {last}")
                self._granted[lease] = (answer.fence, worker.name)
            elif name in NEED_LEASE and holder != worker.name:
                self._found_broken.append(f"{worker.name}: {name} without the lease, which {holder} has")
            return answer

        return lambda name, call: worker.ledger_gate(name, lambda: look(name, call))

    def _ledger_claims_nothing_false(self, name: str, table: MemoryTable) -> None:
        """After a restore, only a claim can know: see `_look_after_every_settle`."""
        if not self.restored[name]:
            self._expect_proof(name, self.ledger)

    def _no_surprise_ended_a_run(self) -> None:
        for worker in self.workers:
            for failure in worker.report.failures if worker.report else ():
                if failure.message.startswith("unexpected error"):
                    raise Broken(f"{worker.name}: {failure.message}")

    def _look_after_every_settle(self) -> None:
        settle = Claim.settle

        def settle_and_look(
            claim: Claim,
            *,
            give_up: bool = True,
            markers: TableMarkers | None = None,
            also: Collection[str] | None = (),
        ) -> TableMarkers:
            job = claim._job
            before = dict(self.restored)
            found = settle(claim, give_up=give_up, markers=markers, also=also)
            if before == self.restored:
                real = getattr(job.ledger, "_real", job.ledger)
                try:
                    self._expect_proof(job.task.table, real)
                except Broken as error:  # the flow would take it for an error of its own
                    self._found_broken.append(f"after a claim has settled: {error}")
            return found

        self._patched.setattr(Claim, "settle", settle_and_look)

    def _expect_proof(self, name: str, ledger: Ledger) -> None:
        if unproven := self._claimed(name, ledger) - set(self.tables[name].contents):
            raise Broken(f"{name}: the ledger has {len(unproven)} contents as committed that have no marker")

    def _claimed(self, name: str, ledger: Ledger) -> set[str]:
        """What a ledger has as committed."""
        hashes = {file.content for file in self.landed}
        again = {
            replace(_found(f), returned=n).identity for f in self.landed for n in range(len(self.landed))
        }
        return set(ledger.batch_of_hashes(f"memory:{name}", hashes | again))

    def _wanted(self, name: str) -> set[str]:
        files = [file for file in self._files_of(name) if not file.vanished]
        return set(_deliveries(files)) if name == WHOLE else {file.content for file in files}

    # What must hold in the end

    def recover_and_run_to_the_end(self) -> None:
        """With fresh workers, while those that are still there sleep."""
        self.pass_time(10 * 365 * 86_400)  # whatever the clock did before: every lease has run out
        for pipeline in self.tables:
            self._load_unhindered(pipeline, recover_pipeline)
            self._no_open_batch_is_applied(pipeline)
            for _ in range(MOST_ROUNDS):
                self.ledger.requeue(pipeline)
                if self._load_unhindered(pipeline).outcome is Outcome.NOTHING_NEW:
                    break
            else:
                raise Broken(f"{pipeline}: does not come to an end")
            self._bad_rows_of_commits_count_once(pipeline, self.tables[pipeline], all_known=True)
        self.expect_everything_once()

    def replay_and_expect_nothing_left(self) -> None:
        """All that counts is replayed, once; and not again by a ledger that has never heard of it."""
        for pipeline in self.tables:
            self._load_unhindered(pipeline, replay_pipeline)
            applied = len(self.tables[pipeline].held)
            self.lose_ledger()
            self.load(pipeline)  # the files that are there
            self._load_unhindered(pipeline, replay_pipeline)
            if len(self.tables[pipeline].held) != applied:
                raise Broken(f"{pipeline}: bad rows were replayed twice")
            if judge(self.ledger, pipeline, {row.attempt for row in self.quarantines[pipeline]}).shown:
                raise Broken(f"{pipeline}: bad rows count although they were replayed")

    def _load_unhindered(self, pipeline: str, work: Work = run_pipeline) -> PipelineReport:
        """Nobody else is awake, so nobody can be in its way."""
        report = self.load(pipeline, work)
        if hindered := [f.message for f in report.failures if f.code in HINDERED]:
            raise Broken(f"{pipeline}: a fresh worker was stopped: {hindered}")
        return report

    def _no_open_batch_is_applied(self, name: str) -> None:
        held = {commit.marker.batch_id for commit in self.tables[name].held}
        if {batch.id for batch in self.ledger.open_batches(f"memory:{name}")} & held:
            raise Broken(f"{name}: a batch that the table holds is open after recovery")

    def let_the_sleepers_finish(self) -> None:
        for worker in self.workers:
            while not worker.done:
                worker.step()
                self.check()

    def expect_everything_once(self) -> None:
        self.check()
        for name, table in self.tables.items():
            wanted = self._wanted(name)
            if missing := wanted - set(table.contents):
                raise Broken(f"{name}: {len(missing)} contents were never applied")
            if open_batches := self.ledger.open_batches(f"memory:{name}"):
                raise Broken(f"{name}: {len(open_batches)} batches are still open")
            recorded = self.ledger.batch_of_hashes(f"memory:{name}", wanted)
            batches = {
                c: commit.marker.batch_id for commit in table.held for c in commit.marker.content_hashes
            }
            if recorded != {content: batches[content] for content in wanted}:
                raise Broken(f"{name}: the ledger says {recorded}, the markers {batches}")
        if any(file.vanished for file in self.landed):
            return
        values = {key: number for key, number in self.tables[STATE].values.items() if key != REPLAYED}
        if values != self._expected():
            raise Broken(f"{STATE}: {values}, expected {self._expected()}")
        states = _deliveries(self._files_of(WHOLE))
        if self.tables[WHOLE].contents != states:
            numbers = [row.number for row in self.tables[WHOLE].rows]
            raise Broken(f"{WHOLE}: {numbers}, expected each state after the one before: {states}")

    def _expected(self) -> dict[str, int]:
        """The oracle: files in their order, the same content only the first time."""
        ranks = self._ranks(STATE)
        texts = {file.content: file.text.split()[:2] for file in self.landed}
        ordered = (texts[content] for content in sorted(ranks, key=lambda content: ranks[content]))
        return {key: int(number) for key, number in ordered}

    def _ranks(self, pipeline: str) -> dict[str, int]:
        """Content → number of the first file that brings it to this pipeline."""
        return {file.content: file.number for file in reversed(self._files_of(pipeline))}

    def _files_of(self, pipeline: str) -> list[Landed]:
        return [file for file in self.landed if pipeline in ENDINGS[file.ending]]

    def _path(self, file: Landed) -> Path:
        return self._landing / f"{file.number:03}.{file.ending}"

    def _quarantine(self, pipeline: str, gate: Gate) -> MemoryQuarantine:
        return MemoryQuarantine(self.quarantines[pipeline], gate)

    def _job(self, worker: Worker, number: int) -> Job:
        ledger, pipeline = self.ledgers[number], worker.pipeline
        globs = [str(self._landing / f"*.{end}") for end, takers in ENDINGS.items() if pipeline in takers]
        task = Task(
            pipeline=pipeline,
            table=pipeline,
            settings=SETTINGS[pipeline],
            source=SourceConfig(files=globs),
            batch=BatchConfig(max_files=None if pipeline == WHOLE else 2),
            root=self._folder,
        )
        destination = MemoryDestination(self.tables, lambda: self.now, number, worker.destination_gate)
        run_id = ledger.start_run("model", "run", host="here", pid=1)
        return Job(
            task,
            cast(Ledger, GatedLedger(ledger, self._watched(worker, number))),
            _connections(pipeline, destination, self._quarantine(pipeline, worker.destination_gate)),
            RunContext(run_id, worker.name, lambda: self.now, self.events.append, worker.cancellation),
        )


def _found(file: Landed) -> SourceFile:
    return SourceFile("", len(file.text), 0, file.content)


def _deliveries(files: Sequence[Landed]) -> list[str]:
    """The oracle of states: a content that comes again after another one is a delivery of its own."""
    delivered: list[str] = []
    times: Counter[str] = Counter()
    before = ""
    for file in files:
        if file.content != before:
            delivered.append(replace(_found(file), returned=times[file.content]).identity)
            times[file.content] += 1
            before = file.content
    return delivered


def _essence(batch: Batch | None) -> object:
    return None if batch is None else (batch.names, batch.content_hashes, batch.sequence, batch.attempt)


def _connections(table: str, destination: MemoryDestination, quarantine: MemoryQuarantine) -> Connections:
    made = Connections(table, _no_spark, lambda _: cast(Any, destination), quarantine_roots=())
    vars(made)["quarantine"] = quarantine
    return made


def _read_in_memory(
    roots: object, *, here: bool, spark_reader: Callable[[], Any], read: Callable[[Any], Any]
) -> Any:
    return read(spark_reader())


def _no_spark() -> Any:
    raise AssertionError("the model needs no Spark")


_TEMPLATES: list[Path] = []


def _empty_ledger() -> Path:
    """Made once: migrations take longer than a whole example."""
    if not _TEMPLATES:
        file = Path(tempfile.mkdtemp(prefix="tallymark-model-")) / "empty.db"
        open_ledger(f"sqlite:///{file}").close()
        _TEMPLATES.append(file)
    return _TEMPLATES[0]
