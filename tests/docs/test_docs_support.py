"""What the pages say about destinations is what the code says."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

from conformance.enrolled import DESTINATIONS
from tallymark.destinations.declaration import Gap, every_strategy
from tallymark.destinations.registry import BUILT_IN, NOT_YET, support_table, with_support
from tallymark.model.settings import Strategy

ROOT = Path(__file__).parents[2]


def test_the_support_table_is_fresh() -> None:
    """When this fails: make docs"""
    page = (ROOT / "docs/reference/destinations.md").read_text(encoding="utf-8")
    assert page == with_support(page)


def test_only_the_table_between_the_marks_is_replaced() -> None:
    page = with_support("a\n<!-- begin support -->\nstale\n<!-- end support -->\nb\n")
    assert page.startswith("a\n<!-- begin support -->\n|")
    assert page.endswith("\n<!-- end support -->\nb\n")
    assert "stale" not in page


def test_a_gap_is_in_the_table_with_its_reason() -> None:
    kind = BUILT_IN["sqlite"]
    strategies = every_strategy(scd2=Gap("it keeps no versions"))
    narrower = replace(kind, capabilities=replace(kind.capabilities, strategies=strategies))
    told = support_table([narrower]).splitlines()
    words = {line.split(" | ")[0]: line.split(" | ")[1] for line in told if line.startswith("|")}
    assert words["| [`scd2`](strategies.md#scd2)"] == "no"
    assert words["| [`cdc`](strategies.md#cdc)"] == "yes"
    assert told[-1] == "- SQLite, [`scd2`](strategies.md#scd2): it keeps no versions."


def test_every_kind_is_declared_consistently() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, kind in BUILT_IN.items():
        assert kind.capabilities.name == kind.name == name
        assert get_args(kind.options.model_fields["type"].annotation) == (name,)
        if kind.driver is not None:
            assert any(kind.driver.module in requirement for requirement in extras[kind.driver.extra])


def test_every_kind_is_in_the_conformance_suite() -> None:
    assert {name for name, entry in DESTINATIONS.items() if not entry.differs_in} == set(BUILT_IN)


def test_the_readme_tells_the_same() -> None:
    rows = {
        cells[0]: cells
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3
    }
    _, works, later = rows["strategies"]
    assert [word.strip("` ") for word in works.split(",")] == list(Strategy)
    assert later == ""
    _, works, later = rows["destinations"]
    built = [kind.title for kind in BUILT_IN.values()]
    assert all(name in works and name not in later for name in built)
    assert all(name in later and name not in works for name in NOT_YET)
