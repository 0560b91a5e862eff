"""The page of benchmarks: which ratio is its headline, and what is measured beside the clock."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

import report
from fresh_process import FreshTimes
from processor_time import processor_seconds
from timing import Bound, Result, Scenario, Side, Timed, in_turn

BENCH = Path(report.__file__).parent
HAND, ON_OURS, RECIPE = "hand MERGE, default settings", "hand MERGE, our settings", "recipe, our settings"


def result(name: str, ours: float, **sides: float) -> Result:
    times = {"tallymark": ours, HAND: 8.0, ON_OURS: 4.0, RECIPE: 2.0} | sides
    scenario = Scenario(name, "tallymark", (Bound(HAND, 1.0),), fair=(ON_OURS, RECIPE))
    return Result(scenario, {side: Timed((seconds, seconds, seconds)) for side, seconds in times.items()})


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> report.Report:
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures.json")
    return report.Report({"processor": "one"})


def text(of: report.Report) -> str:
    return report.page(of.figures, [])


def test_the_fair_ratio_is_against_the_fastest_written_by_hand_on_the_same_settings() -> None:
    assert result("upsert", 3.0).fair_ratio == 1.5


def test_the_headline_is_the_worst_fair_ratio(page: report.Report) -> None:
    page.add_result(result("upsert", 3.0))
    page.add_result(result("append", 2.4))
    headline = next(line for line in text(page).splitlines() if line.startswith("**"))
    assert "1.5 times" in headline
    assert "upsert" in headline


def test_every_side_shows_its_spread_and_what_a_fresh_process_takes(page: report.Report) -> None:
    found = result("upsert", 3.0)
    fresh = FreshTimes(Timed((20.0, 21.0, 25.0)), Timed((6.0, 6.5, 7.0)))
    page.add_result(Result(found.scenario, found.sides, fresh={"tallymark": fresh}))
    lines = [line for line in text(page).splitlines() if line.startswith("| tallymark |")]
    assert lines == ["| tallymark | 21.0 s (20.0 to 25.0) | 6.5 s (6.0 to 7.0) | 3.0 s (3.0 to 3.0) |  |  |"]


def test_loads_measured_against_default_settings_alone_are_no_loads_on_spark(page: report.Report) -> None:
    plain = Scenario("PostgreSQL", "tallymark", ())
    page.add_result(Result(plain, {"tallymark": Timed((1.0,)), "dlt": Timed((2.0,))}))
    assert "No load on Spark has been measured" in text(page)
    assert "| PostgreSQL | 1.0 s | dlt 2.0 s |" in text(page)


def test_processor_time_counts_what_a_process_started() -> None:
    before = processor_seconds()
    busy = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 60
        while processor_seconds(child.pid) < 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
        alive = processor_seconds() - before
        child.communicate(b"\n")
    assert alive >= 0.5
    assert processor_seconds() - before >= 0.5  # it has ended, and was waited for


def test_sides_take_turns_and_must_give_the_same_result() -> None:
    order: list[str] = []

    def side(name: str, gives: int) -> Side:
        return Side(name, lambda _: order.append(name), lambda: gives)

    in_turn([side("a", 1), side("b", 1)], 1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    with pytest.raises(AssertionError, match="did not do the same job"):
        in_turn([side("a", 1), side("b", 2)], 1)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in BENCH.glob("*.py") if path.stem not in ("plot", "conftest"))
)
def test_every_module_of_the_benchmarks_can_be_imported(name: str) -> None:
    importlib.import_module(name)
