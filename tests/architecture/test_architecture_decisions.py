"""Every decision record says whether it holds and since when, and the index lists it."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEAD = re.compile(r"# (\d{4}): (.+)\n\nStatus: (.+)\nDate: (\d{4}-\d\d-\d\d)\n\n## ")
STATUS = re.compile(
    r"accepted(, points? [\d and,]+ withdrawn on \d{4}-\d\d-\d\d)?|superseded by \[\d{4}\]\(\d{4}-[\w-]+\.md\)"
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.stem))
def test_a_record_has_a_status_and_a_date(record: Path) -> None:
    head = HEAD.match(record.read_text())
    assert head is not None, "expected: # NNNN: title, Status:, Date:, then a heading"
    number, _, status, day = head.groups()
    assert record.name.startswith(number)
    assert STATUS.fullmatch(status)
    assert date.fromisoformat(day) >= date(2026, 11, 15)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.stem))
def test_measurements_come_last(record: Path) -> None:
    headings = re.findall(r"(?m)^## (.+)$", record.read_text())
    assert headings[0] == "Decision"
    assert not [heading for heading in headings[:-1] if "measurement" in heading.lower()]


def test_numbers_and_titles_are_unique() -> None:
    for part in (1, 2):
        found = Counter(head[part] for record in RECORDS if (head := HEAD.match(record.read_text())))
        assert [value for value, uses in found.items() if uses > 1] == []


def test_the_index_has_every_record_with_its_status_and_date() -> None:
    rows = re.findall(r"(?m)^\| \[(.+)\]\((.+)\) \| (.+) \| (.+) \|$", (FOLDER / "README.md").read_text())
    heads = {record.name: HEAD.match(record.read_text()) for record in RECORDS}
    expected = [(f"{h[1]}: {h[2]}", name, h[3], h[4]) for name, h in heads.items() if h]
    assert rows == expected
