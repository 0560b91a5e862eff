"""Pages about the source name what is there: modules of the architecture page, members of the destination guide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from destination_guide import members, with_engine_members

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tallymark"
ARCHITECTURE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
GUIDE = (ROOT / "docs" / "how-to" / "add-a-destination.md").read_text()


def test_every_module_of_the_architecture_page_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+(?:\.py)?|\w+\.py)`", ARCHITECTURE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (SOURCE / name).exists()] == []


def test_every_package_is_in_the_picture() -> None:
    picture = ARCHITECTURE.split("```")[1]
    packages = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    folders = [path.parent.name for path in (SOURCE / "destinations").glob("*/__init__.py")]
    assert [name for name in sorted([*packages, *folders]) if f"{name}/" not in picture] == []


@pytest.mark.parametrize(
    ("module", "classes"),
    [
        ("destinations/contract.py", ["Destination", "TargetTable", "PreparedLoad", "TableLocator", "Views"]),
        ("destinations/declaration.py", ["DestinationKind"]),
        ("destinations/lakehouse/commit.py", ["LakehouseTable"]),
        ("destinations/lakehouse/history.py", ["TableHistory"]),
        ("destinations/warehouse/engine.py", ["Engine", "Session"]),
    ],
)
def test_the_guide_names_every_member(module: str, classes: list[str]) -> None:
    missing = [
        f"{name}.{member}"
        for name in classes
        for member in members(SOURCE / module, name)
        if not re.search(rf"`{member}`", GUIDE)
    ]
    assert missing == []


def test_tables_from_docstrings_are_fresh() -> None:
    """Write them anew with `make docs`."""
    assert with_engine_members(GUIDE) == GUIDE
