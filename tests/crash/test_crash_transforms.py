"""Every strategy through SQL: the process dies between the commit and its record, and before a commit; then the
table is what the oracle makes of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from crash.scenarios import DESTINATIONS, write_project
from crash.seams import BEFORE, Point
from crash.store import Found, Store, naive
from crash.tally import Tally
from crash.worker import Order, Workshop
from oracle import Oracle, Row, canonical
from tallymark.config.load_project import load_project
from tallymark.model.settings import Strategy

pytestmark = pytest.mark.slow

BY_ID = "-- @unique_key: id"
NEEDS = {
    Strategy.FULL_REFRESH: "",
    Strategy.APPEND_ONLY: "",
    Strategy.INSERT: BY_ID,
    Strategy.UPDATE: BY_ID,
    Strategy.UPSERT: BY_ID,
    Strategy.INCREMENTAL: f"{BY_ID}\n-- @watermark_column: at",
    Strategy.DEDUPLICATE: f"{BY_ID}\n-- @dedup_order_by: at",
    Strategy.FULL_MERGE: f"{BY_ID}\n-- @guards.max_delete_fraction: 1",
    Strategy.DELETE_INSERT: f"{BY_ID}, name",
    Strategy.SNAPSHOT: "-- @partition_column: name",
    Strategy.SCD2: f"{BY_ID}\n-- @scd_effective_from: at",
    Strategy.CDC: f"{BY_ID}\n-- @cdc.operation_column: op\n-- @cdc.sequence_by: at",
}
QUERY = """-- @merge_strategy: {strategy}
-- @table: {schema}.t
{needs}
SELECT {op} CAST(id AS BIGINT) AS id, name, CAST(at AS TIMESTAMP) AS at FROM {{{{ landing_zone('feed') }}}}
"""
# Operation, id, name and day: new, changed, unchanged, late and deleted rows.
BATCHES = [
    [("i", 1, "a", 1), ("i", 2, "a", 1), ("i", 3, "b", 1)],
    [("u", 1, "b", 5), ("u", 2, "a", 1), ("i", 4, "c", 2)],
    [("u", 1, "late", 2), ("d", 3, "b", 6), ("i", 5, "a", 7)],
]
DIES = {1: Point("ledger.commit_batch", BEFORE), 2: Point("prepared.commit", BEFORE)}
# What a death leaves is the destination's to settle, whatever the strategy; other tests kill loads into Delta.
PLACES = [(Strategy.FULL_MERGE, "sqlite"), (Strategy.CDC, "postgres")]


@dataclass(frozen=True)
class Feed:
    root: Path
    store: Store
    strategy: Strategy

    @classmethod
    def build(cls, root: Path, destination: str, strategy: Strategy, postgres: Callable[[], str]) -> Feed:
        url = postgres() if destination == "postgres" else ""
        schema = f"s{uuid4().hex[:8]}" if destination == "postgres" else "silver"
        write_project(root, destination, url, f"sqlite:///{root}/ledger.db")
        (root / "pipelines/t").mkdir(parents=True)
        (root / "landing/feed").mkdir(parents=True)
        op = "op," if strategy is Strategy.CDC else ""
        text = QUERY.format(strategy=strategy, schema=schema, needs=NEEDS[strategy], op=op)
        (root / "pipelines/t/pipeline.sql").write_text(text)
        return cls(root, Store(destination, root, url, schema), strategy)

    def deliver(self, number: int) -> None:
        """The landing zone holds one delivery at a time."""
        for old in (self.root / "landing/feed").iterdir():
            old.unlink()
        lines = [f"{op},{key},{name},2026-11-{day:02}T00:00:00Z" for op, key, name, day in BATCHES[number]]
        (self.root / f"landing/feed/{number}.csv").write_text("\n".join(["op,id,name,at", *lines, ""]))

    def rows_of(self, number: int) -> list[Row]:
        names = ("op", "id", "name", "at") if self.strategy is Strategy.CDC else ("id", "name", "at")
        return [
            {
                name: value
                for name, value in {
                    "op": op,
                    "id": key,
                    "name": text,
                    "at": naive(datetime(2026, 11, day, tzinfo=UTC)),
                }.items()
                if name in names
            }
            for op, key, text, day in BATCHES[number]
        ]

    def markers(self) -> list[Found]:
        return sorted(self.store.markers("t"), key=lambda found: found.marker.sequence)


@pytest.fixture
def kill(
    workshop: Workshop, tally: Tally, tmp_path: Path, postgres: Callable[[], str]
) -> Callable[[str, Strategy], None]:
    def kill(destination: str, strategy: Strategy) -> None:
        feed = Feed.build(tmp_path, destination, strategy, postgres)
        oracle = Oracle(load_project(feed.root).pipelines["t"].settings)
        for number in range(len(BATCHES)):
            feed.deliver(number)
            if number in DIES:
                assert workshop.run(Order(feed.root, die_at=DIES[number])).killed
                tally.add(destination, str(DIES[number]))
            ended = workshop.finish(feed.root)
            assert ended.done, ended
            markers = feed.markers()
            assert len(markers) == number + 1
            expected = oracle.load(feed.rows_of(number), as_of=naive(markers[-1].marker.as_of))
            assert markers[-1].marker.counts == expected
        assert canonical(feed.store.rows("t")) == canonical(oracle.rows)
        left = feed.store.left_behind(("t",))
        assert [name for name in left if "_tallymark_tombstones_" not in name] == []

    return kill


@pytest.mark.parametrize(("strategy", "destination"), PLACES)
def test_a_strategy_through_sql(
    destination: str, strategy: Strategy, kill: Callable[[str, Strategy], None]
) -> None:
    kill(destination, strategy)


@pytest.mark.big
@pytest.mark.parametrize("strategy", NEEDS)
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_every_strategy_through_sql(
    destination: str, strategy: Strategy, kill: Callable[[str, Strategy], None]
) -> None:
    kill(destination, strategy)
