"""Drives one destination through plans, the way the flow does, without files and ledger."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256

from pyspark.sql import SparkSession

from conformance.enrolled import Subject
from driver_rows import prepare, struct
from oracle import Oracle, Row
from tallymark.destinations.contract import Commit, Destination, PreparedLoad, TargetTable
from tallymark.model.plan import Plan
from tallymark.model.receipt import Counts, Marker
from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column
from tallymark.strategies.build import build_plan

AS_OF = datetime(2026, 11, 1, 10, 15, tzinfo=UTC)


@dataclass
class Bench:
    spark: SparkSession
    subject: Subject
    sequence: int = 0
    commits: list[Commit] = field(default_factory=list)
    planned: Counts | None = None

    @property
    def destination(self) -> Destination:
        return self.subject.destination

    @property
    def table(self) -> str:
        return self.subject.table

    @cached_property
    def target(self) -> TargetTable:
        return self.destination.table(self.table)

    @property
    def as_of(self) -> datetime:
        """An hour later for every batch."""
        return AS_OF + timedelta(hours=self.sequence)

    def plan(self, settings: MergeSettings, schema: str, *, rebuild: bool = False) -> Plan:
        fields = struct(schema).fields
        stored_as = self.destination.column_type
        incoming = [Column(f.name, stored_as(f.dataType.simpleString())) for f in fields]
        current = self.target.shape()
        properties = self.destination.table_properties
        return build_plan(
            self.table,
            settings,
            incoming,
            current,
            as_of=self.as_of,
            table_properties=properties,
            rebuild=rebuild,
        )

    def prepare(
        self, plan: Plan, schema: str, rows: list[Row], *, for_commit: bool = True
    ) -> AbstractContextManager[PreparedLoad]:
        return prepare(self.destination, self.target, self.spark, plan, schema, rows, for_commit=for_commit)

    def marker(
        self,
        content: str,
        counts: Counts,
        sequence: int | None = None,
        *,
        unique_by: tuple[str, ...] = (),
    ) -> Marker:
        return Marker(
            batch_id=f"batch-{content}",
            pipeline="test",
            table_key=self.target.key,
            sequence=self.sequence if sequence is None else sequence,
            fence=1,
            content_hashes=(hash_of(content),),
            as_of=self.as_of,
            strategy="test",
            counts=counts,
            unique_by=unique_by,
        )

    def load(
        self,
        settings: MergeSettings,
        schema: str,
        rows: list[Row],
        content: str | None = None,
        *,
        rebuild: bool = False,
    ) -> Counts:
        self.sequence += 1
        plan = self.plan(settings, schema, rebuild=rebuild)
        self._look(plan, schema, rows)
        with self.prepare(plan, schema, rows) as prepared:
            counts = prepared.counts
            assert self.planned in (None, counts)
            marker = self.marker(content or f"c{self.sequence}", counts, unique_by=plan.unique_by)
            way = prepared.method.name
            commit = prepared.commit(marker)
        assert (commit.disagreement, commit.method) == ("", way)
        self.commits.append(commit)
        return counts

    def _look(self, plan: Plan, schema: str, rows: list[Row]) -> None:
        """A load does what a plan on the same state said. Spark's own destinations compute both by the same
        code, and a second time would cost seconds."""
        self.planned = None
        if self.destination.capabilities.locks_while_loading:
            with self.prepare(plan, schema, rows, for_commit=False) as looked_at:
                self.planned = looked_at.counts

    def rows(self) -> list[Row]:
        return self.subject.rows()


def hash_of(content: str) -> str:
    return sha256(content.encode()).hexdigest()


def load_both(bench: Bench, oracle: Oracle, schema: str, batch: list[Row]) -> Counts:
    before = len(oracle.rows)
    counts = bench.load(oracle.settings, schema, batch)
    assert counts == oracle.load(batch, bench.as_of)
    assert len(oracle.rows) == before + counts.inserted - counts.deleted
    return counts


def comparable(rows: list[Row]) -> list[Row]:
    """Times of loads are moments; tables give them without zone, in UTC."""
    return [{name: _naive(value) for name, value in row.items()} for row in rows]


def _naive(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
