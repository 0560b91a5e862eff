"""One module for each family of formats. A reader takes a Request and gives the columns described in
`scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from pyspark.sql import DataFrame

from tallymark.config.pipeline_file import Format, SourceConfig
from tallymark.errors import SourceError
from tallymark.model.batch import SourceFile
from tallymark.sources.formats import columnar, excel, nested, text
from tallymark.sources.formats.scan import Request
from tallymark.sources.heads import COMPRESSIONS

READERS: dict[Format, Callable[[Request], DataFrame | None]] = {
    Format.CSV: text.read_csv,
    Format.NDJSON: nested.read_json_lines,
    Format.JSON: nested.read_json_documents,
    Format.PARQUET: columnar.read_parquet,
    Format.ORC: columnar.read_orc,
    Format.AVRO: columnar.read_avro,
    Format.XML: nested.read_xml,
    Format.TEXT: text.read_text,
    Format.FIXED_WIDTH: text.read_fixed_width,
    Format.EXCEL: excel.read,
}

COLUMNAR = frozenset({Format.PARQUET, Format.ORC})  # faster to read twice than to persist
# Formats of text: only their rows can fail to decode.
TEXTUAL = frozenset({Format.CSV, Format.NDJSON, Format.JSON, Format.XML, Format.TEXT, Format.FIXED_WIDTH})

_EXTENSIONS = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".jsonl": Format.NDJSON,
    ".ndjson": Format.NDJSON,
    ".json": Format.JSON,
    ".parquet": Format.PARQUET,
    ".orc": Format.ORC,
    ".avro": Format.AVRO,
    ".xml": Format.XML,
    ".txt": Format.TEXT,
    ".xlsx": Format.EXCEL,
}


def extension(path: str) -> str:
    """Without the extension of a compression: `.csv` for orders.csv.gz."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def format_of(source: SourceConfig, files: Sequence[SourceFile]) -> Format:
    """As declared, or else by the extension, which must be known and the same for all files."""
    if source.format:
        return source.format
    examples = {extension(file.path): file.path for file in files}
    if len(examples) > 1:
        shown = ", ".join(sorted(examples.values())[:3])
        raise SourceError(
            f"source: the files have different extensions ({shown})",
            hint="set source.format, or narrow source.files to one kind of file",
        )
    for found, path in examples.items():
        if found not in _EXTENSIONS:
            raise SourceError(
                f"source: the format of {path} is not known from its extension",
                hint=f"set source.format to one of {', '.join(Format)}",
            )
        return _EXTENSIONS[found]
    raise SourceError("source: there are no files whose names show the format", hint="set source.format")
