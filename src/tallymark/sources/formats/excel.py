"""Workbooks, read by openpyxl on Spark's workers: the only format whose rows go through Python.

1. read the header of every workbook, in a job
2. group the files by header
3. read the rows of each group
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.model.plan import ROW_BLOCK, ROW_ORDER
from tallymark.sources.formats.scan import CORRUPT, PATH, Request, is_on, load, options_for, united
from tallymark.sources.formats.text import column_names, numbered_names
from tallymark.sources.read_failures import UNREADABLE_MARK, spark_failure
from tallymark.sources.stores import as_reported

if TYPE_CHECKING:
    import pyarrow as pa

    Row = tuple[str, int, list[str | None] | None, str | None]  # path, number, cells, problem

_CELLS = "cells"
_PROBLEM = "problem"
_MISSING_LIBRARY = "openpyxl is missing"
# A workbook is a zip file, which can unpack to any size. Sheets are read row by row, all else as a whole.
_LIMITS = (4 << 30, 512 << 20)  # of a sheet, and of another part, in bytes when unpacked
_OUTPUT = f"{PATH} string, {ROW_ORDER} bigint, {_CELLS} array<string>, {_PROBLEM} string"


def read(request: Request) -> DataFrame | None:
    has_header = is_on(options_for(request.source, {"header": "true"}), "header")
    firsts = _first_rows(request)
    groups: dict[tuple[str, ...], list[SourceFile]] = {}
    for file in request.files:
        cells = firsts.get(file.path)
        if cells is not None:
            names = column_names(file, cells) if has_header else numbered_names(request, len(cells))
            groups.setdefault(names, []).append(file)
    return united([_rows(request, names, files, has_header) for names, files in groups.items()])


def _first_rows(request: Request) -> dict[str, list[str]]:
    """The first row that is not empty, by path; none for an empty sheet."""
    for file in request.files:
        if file.size == 0:
            raise UnreadableFile(file.path, "is empty (0 bytes): not a workbook")
    try:
        found = _cells(request, request.files, first_only=True).collect()
    except Exception as error:
        raise spark_failure(error, request.files) from error
    by_url = {as_reported(file.path): file.path for file in request.files}
    for row in found:
        if row[_PROBLEM] == _MISSING_LIBRARY:
            raise SourceError(
                "source: format excel needs openpyxl", hint="run `pip install 'tallymark[excel]'`"
            )
        if row[_PROBLEM]:
            raise UnreadableFile(by_url[row[PATH]], row[_PROBLEM])
    return {by_url[row[PATH]]: [cell or "" for cell in _trimmed(row[_CELLS])] for row in found}


def _trimmed(cells: Sequence[str | None]) -> list[str | None]:
    """Cells at the right end that are formatted but empty are not columns."""
    last = max((i for i, cell in enumerate(cells) if cell), default=-1)
    return list(cells[: last + 1])


def _rows(
    request: Request, names: tuple[str, ...], files: Sequence[SourceFile], has_header: bool
) -> DataFrame:
    frame = _cells(request, files, first_only=False)
    if has_header:  # the first row that is not empty has number 0
        frame = frame.where(F.col(ROW_ORDER) > 0)
    cells = F.col(_CELLS)
    columns = [F.get(cells, F.lit(i)).alias(name) for i, name in enumerate(names)]
    beyond = F.slice(cells, F.lit(len(names) + 1), F.greatest(F.size(cells) - len(names), F.lit(0)))
    too_many = F.exists(beyond, lambda cell: cell.isNotNull())
    return frame.select(
        *columns,
        F.when(too_many, F.to_json(cells)).alias(CORRUPT),
        PATH,
        F.lit(0).cast("bigint").alias(ROW_BLOCK),
        ROW_ORDER,
    )


def _cells(request: Request, files: Sequence[SourceFile], *, first_only: bool) -> DataFrame:
    content = load(request, "binaryFile", {}, files)
    path = content.metadataColumn("_metadata")["file_path"]
    reader = workbook_reader(request.source.sheet, first_only, _MISSING_LIBRARY, UNREADABLE_MARK)
    return content.select(path.alias(PATH), "content").mapInArrow(reader, _OUTPUT)


def workbook_reader(  # noqa: PLR0915  self-contained
    sheet: str | int | None,
    first_only: bool,
    missing_library: str,
    unreadable_mark: str,
    limits: tuple[int, int] = _LIMITS,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Self-contained: it runs on workers where Tallymark is not installed."""

    def text(value: object) -> str | None:
        import datetime

        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case datetime.datetime() if value.time() == datetime.time():
                return value.date().isoformat()
            case datetime.datetime() | datetime.date() | datetime.time():
                return value.isoformat()
            case float():
                return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
            case _:
                return str(value)

    def refuse_bombs(data: bytes) -> None:
        """More than a part says of its size is never unpacked, so what they say can be trusted."""
        import io
        import zipfile

        for part in zipfile.ZipFile(io.BytesIO(data)).infolist():
            most = limits[0] if part.filename.startswith("xl/worksheets/") else limits[1]
            if part.file_size > most:
                unpacked = f"{part.filename} unpacks to {part.file_size >> 20} MiB"
                raise ValueError(f"{unpacked}, and at most {most >> 20} MiB are read")

    def rows(data: bytes) -> Iterator[tuple[int, list[str | None]]]:
        import io

        import openpyxl

        refuse_bombs(data)
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        names = book.sheetnames
        wanted = sheet if isinstance(sheet, str) else dict(enumerate(names)).get(sheet or 0)
        if wanted not in names:
            raise KeyError(f"there is no sheet {sheet}; its sheets are {', '.join(names)}")
        number = 0
        for row in book[wanted].iter_rows(values_only=True):
            cells = [text(value) for value in row]
            if any(cell is not None for cell in cells):
                yield number, cells
                number += 1

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        types = [pa.string(), pa.int64(), pa.list_(pa.string()), pa.string()]
        names = ["_tm_path", "_tm_row", "cells", "problem"]

        def batch(found: list[Row]) -> pa.RecordBatch:
            arrays = [pa.array(list(values), kind) for values, kind in zip(zip(*found), types)]  # noqa: B905
            return pa.RecordBatch.from_arrays(arrays, names=names)

        for files in batches:
            for path, data in zip(files.column(0), files.column(1), strict=True):
                found: list[Row] = []
                try:
                    for number, cells in rows(data.as_py()):
                        found.append((path.as_py(), number, cells, None))
                        if first_only:
                            break
                        if len(found) == 5000:
                            yield batch(found)
                            found = []
                except ImportError:
                    found = [(path.as_py(), -1, None, missing_library)]
                except Exception as error:
                    if not first_only:
                        raise RuntimeError(f"{unreadable_mark}: {path.as_py()}: {error}") from error
                    reason = error.args[0] if isinstance(error, KeyError) else error
                    found = [(path.as_py(), -1, None, f"cannot be read as a workbook: {reason}")]
                if found:
                    yield batch(found)

    return read
