"""What the pages say about destinations is what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from tallymark.config.project import DestinationConfig
from tallymark.destinations.support import BUILT, NOT_YET, with_support
from tallymark.model.settings import Strategy

ROOT = Path(__file__).parents[2]


def test_the_support_table_is_fresh() -> None:
    """When this fails: make docs"""
    page = (ROOT / "docs/reference/destinations.md").read_text(encoding="utf-8")
    assert page == with_support(page)


def test_only_the_table_between_the_marks_is_replaced() -> None:
    page = with_support("a\n<!-- begin support -->\nstale\n<!-- end support -->\nb\n")
    assert page.startswith("a\n<!-- begin support -->\n|")
    assert page.endswith("|\n<!-- end support -->\nb\n")
    assert "stale" not in page


def test_the_table_has_every_destination_that_can_be_configured() -> None:
    kinds = get_args(get_args(DestinationConfig)[0])
    assert {c.name for c in BUILT.values()} == {
        get_args(kind.model_fields["type"].annotation)[0] for kind in kinds
    }


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
    assert all(name in works and name not in later for name in BUILT)
    assert all(name in later and name not in works for name in NOT_YET)
