"""The list of mutants does not rot: every line is in the source, once, and what replaces it is Python."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mutants.listed import MUTANTS
from mutants.mutant import Mutant, Stale

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/tallymark"
FEWEST = 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_a_mutant_fits_the_source(mutant: Mutant) -> None:
    source = (SOURCE / mutant.module).read_text()
    mutated = mutant.applied(source)
    assert mutated != source
    compile(mutated, mutant.module, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_its_tests_are_there(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert not name or re.search(rf"\b(def|class) {re.escape(name.partition('[')[0])}\b", text), test


def test_names_are_unique_and_enough() -> None:
    assert [name for name, times in Counter(mutant.name for mutant in MUTANTS).items() if times > 1] == []
    assert len(MUTANTS) >= FEWEST


def test_the_page_tells_of_every_mutant() -> None:
    """`make mutants` writes it."""
    page = (ROOT / "docs/explanation/how-it-is-tested.md").read_text().partition("<!-- The mutants")[2]
    told = set(re.findall(r"(?m)^\| ([^|`]+) \| `", page))
    assert {mutant.name for mutant in MUTANTS} == told
    assert "**survived**" not in page and "**stale**" not in page


def test_a_line_that_is_gone_or_stands_there_twice_is_an_error() -> None:
    mutant = Mutant("x", "x.py", "a = 1", "a = 2", ("t",), "")
    assert mutant.applied("if b:\n    a = 1\n") == "if b:\n    a = 2\n"
    for source in ("a = 3\n", "a = 1\na = 1\n"):
        with pytest.raises(Stale):
            mutant.applied(source)
    second = Mutant("x", "x.py", "a = 1", "a = 2", ("t",), "", after="b = 1")
    assert second.applied("a = 1\nb = 1\na = 1\n") == "a = 1\nb = 1\na = 2\n"
    with pytest.raises(Stale):
        second.applied("a = 1\nb = 1\n")
