from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pytest
from openpyxl.worksheet.worksheet import Worksheet

from tallymark.errors import UnreadableFile
from tallymark.sources.formats.excel import workbook_reader


def save(path: Path, *rows: list[object], sheet: str = "Sheet", first: str | None = None) -> None:
    book = openpyxl.Workbook()
    page = book.active
    assert isinstance(page, Worksheet)
    if first:
        page.title = first
        page = book.create_sheet(sheet)
    for row in rows:
        page.append(row)
    book.save(path)


def test_values_come_as_exact_text(landing: Any) -> None:
    save(
        landing.folder / "a.xlsx",
        ["id", "name", "day", "at", "x", "yes"],
        [1, "a", dt.date(2026, 11, 1), dt.datetime(2026, 11, 1, 3, 4, 5), 0.1, True],
        [],
        [2, None, None, None, 1234567.25, False],
    )
    assert landing.rows() == [
        ("1", "a", "2026-11-01", "2026-11-01T03:04:05", "0.1", "true", None),
        ("2", None, None, None, "1234567.25", "false", None),
    ]


def test_headers_group_files_and_cells_beyond_them_are_malformed(landing: Any) -> None:
    save(landing.folder / "1.xlsx", ["id", "name"], [1, "a"], [2, "b", "extra"])
    save(landing.folder / "2.xlsx", ["name", "id"], ["c", 3])
    assert landing.rows() == [("1", "a", None), ("2", "b", '["2","b","extra"]'), ("3", "c", None)]


def test_sheets_and_no_header(landing: Any) -> None:
    save(landing.folder / "a.xlsx", [1, "a"], sheet="Orders", first="Notes")
    for sheet in ("Orders", 1):
        assert landing.rows(sheet=sheet, options={"header": False}) == [("1", "a", None)]
    assert landing.read().columns == ()  # the first sheet is empty
    for missing in ("Ordres", 7):
        with pytest.raises(UnreadableFile, match="its sheets are Notes, Orders"):
            landing.read(sheet=missing)


@pytest.mark.parametrize("content", [b"", b"no workbook"])
def test_what_is_no_workbook_is_named(landing: Any, content: bytes) -> None:
    save(landing.folder / "1.xlsx", ["id"], [1])
    bad = landing.write("2.xlsx", content)
    with pytest.raises(UnreadableFile) as caught:
        landing.read()
    assert caught.value.path == str(bad)


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    batch = pa.RecordBatch.from_pydict({"path": ["file:/a.xlsx"], "content": [b"x"]})
    (result,) = workbook_reader(None, True, "MISSING", "MARK")([batch])
    assert result.to_pylist()[0]["problem"] == "MISSING"
