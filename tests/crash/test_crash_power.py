"""What a power cut leaves of a Delta table: the newest commit is gone, and copies and ledger still have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.loads import Loads
from crash.scenarios import Scenario
from tallymark.flow.recover import recover_pipeline
from tallymark.flow.run import run_pipeline
from tallymark.spark import Sessions

pytestmark = pytest.mark.slow
ONE_BY_ONE = "batch: {max_files: 1}"


@pytest.fixture(params=["append", "merge"])
def loads(request: pytest.FixtureRequest, tmp_path: Path, sessions: Sessions) -> Loads:
    scenario = Scenario.build(tmp_path, "delta", (request.param,), file_count=2, settings=ONE_BY_ONE)
    return Loads(scenario, sessions)


def lose_newest_commit(scenario: Scenario) -> None:
    """Its data files stay: nobody reads them any more."""
    [kind] = scenario.kinds
    log = scenario.root / "warehouse" / scenario.schema / kind / "_delta_log"
    newest = max(log.glob("*.json"))
    for file in log.glob(f"{newest.stem}.*"):
        file.unlink()


@pytest.mark.parametrize("work", [run_pipeline, recover_pipeline], ids=["run", "recover"])
def test_a_commit_that_is_gone_is_loaded_again(loads: Loads, work: object) -> None:
    loads.run()
    lose_newest_commit(loads.scenario)
    report = loads.run(work=recover_pipeline if work is recover_pipeline else run_pipeline)
    assert len(report.undone) == 1
    loads.finish()
    assert loads.scenario.differences() == []
