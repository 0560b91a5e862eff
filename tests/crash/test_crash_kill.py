"""Real processes, killed with SIGKILL before, during and after every step of a load, then run to the end."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.chain import Chain
from crash.scenarios import DESTINATIONS, KINDS, SLICE, Scenario, in_slice
from crash.tally import Tally
from crash.worker import SEED, Workshop

LIMIT = int(os.environ.get("TALLYMARK_KILLS", "0")) or None  # for each destination and kind
IN_SLICE = {"delta": 2, "iceberg": 2, "sqlite": 4, "duckdb": 4, "postgres": 4}
SMALL_BATCHES = "batch: {max_files: 2}"  # so that something newer waits behind what the dead left open

Postgres = Callable[[], str]


@pytest.fixture
def chain_of(
    workshop: Workshop, tally: Tally, tmp_path: Path, postgres: Postgres
) -> Callable[[str, str], Chain]:
    def make(destination: str, kind: str) -> Chain:
        """With PostgreSQL, the ledger is there too."""
        url = postgres() if destination == "postgres" else ""
        number = iter(range(10**6))

        def fresh() -> Scenario:
            root = tmp_path / f"{destination}-{kind}-{next(number)}"
            ledger = postgres() if destination == "postgres" else ""
            settings = SMALL_BATCHES if kind in ("append", "merge") else ""
            return Scenario.build(
                root, destination, (kind,), postgres=url, ledger=ledger, file_count=2, settings=settings
            )

        return Chain(workshop, fresh, random.Random(f"{SEED} {destination} {kind}"), tally)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("place", SLICE)
def test_some_kills(place: str, chain_of: Callable[[str, str], Chain], tally: Tally) -> None:
    print(f"repeat with TALLYMARK_SEED={SEED}")
    destination = in_slice(place, SEED)
    kind = random.Random(f"{SEED} {destination}").choice(sorted(KINDS))
    chain = chain_of(destination, kind)
    assert chain.kill(IN_SLICE[destination]) == []
    assert tally.total > 0


@pytest.mark.big
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_kills_at_every_step(
    destination: str, kind: str, chain_of: Callable[[str, str], Chain], tally: Tally
) -> None:
    """Together, the kinds meet every step of a destination; each meets all that have an effect."""
    print(f"repeat with TALLYMARK_SEED={SEED}")
    chain = chain_of(destination, kind)
    assert chain.kill(LIMIT, (list(KINDS).index(kind) + SEED) % len(KINDS), len(KINDS)) == []
    assert not chain.missed
    assert tally.total >= (LIMIT or 30) // 2
