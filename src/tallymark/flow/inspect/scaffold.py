"""A pipeline for files like a given one: its columns, types and separator as found in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from glob import escape
from pathlib import Path

from pyspark.sql import SparkSession

from tallymark.config.load_project import LoadedProject
from tallymark.config.new_project import files_like, scaffold_pipeline
from tallymark.config.pipeline_file import ColumnConfig, SourceConfig
from tallymark.errors import ConfigError
from tallymark.model.batch import SourceFile
from tallymark.model.settings import Strategy
from tallymark.sources.formats.scan import CORRUPT, named
from tallymark.sources.new_files import discover, nothing_known
from tallymark.sources.read_failures import spark_failure
from tallymark.sources.read_files import read_files
from tallymark.spark import Sessions


def scaffold_from_sample(
    project: LoadedProject,
    sessions: Sessions,
    name: str,
    sample: Path,
    strategy: str | None,
    unique_key: Sequence[str],
) -> Path:
    chosen = strategy or (Strategy.UPSERT if unique_key else Strategy.APPEND_ONLY)
    if chosen not in set(Strategy):
        raise ConfigError(f"unknown strategy {chosen}", hint="one of " + ", ".join(Strategy))
    source = SourceConfig(files=escape(str(sample)))
    found = discover(source, project.root, nothing_known, sessions.isolated, now=datetime.now(UTC))
    columns = infer_columns(sessions.isolated(), source, found.files, project.root)
    if resplit := with_other_separator(source, columns):
        source, columns = resplit, infer_columns(sessions.isolated(), resplit, found.files, project.root)
    separator = source.options.get("sep")
    return scaffold_pipeline(
        project,
        name,
        files_like(project, sample),
        columns,
        Strategy(chosen),
        unique_key,
        separator=None if separator is None else str(separator),
    )


_SAMPLE_ROWS = 1000
_LARGEST_BIGINT = (1 << 63) - 1
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(?:\.(\d+))?")  # 007 is a code, not a number
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")
_OTHER_SEPARATORS = (";", "\t", "|")


def infer_columns(
    spark: SparkSession, source: SourceConfig, files: Sequence[SourceFile], root: Path
) -> list[ColumnConfig]:
    read = read_files(spark, source, (), files, root)
    texts = [column.name for column in read.columns if column.type == "string"]
    try:
        good = read.frame.where(named(CORRUPT).isNull())
        rows = good.select(*(named(name) for name in texts)).limit(_SAMPLE_ROWS).collect() if texts else []
    except Exception as error:
        raise spark_failure(error, files) from error
    taken: set[str] = set()
    inferred = []
    for column in read.columns:
        name = _unused(snake_case(column.name), taken)
        values = [row[texts.index(column.name)] for row in rows] if column.name in texts else []
        kind = guess_type(values) if column.name in texts else column.type
        fields = {"name": name, "type": kind} | ({"from": column.name} if name != column.name else {})
        inferred.append(ColumnConfig.model_validate(fields))
    return inferred


def snake_case(name: str) -> str:
    """`Order ID`, `orderId` and `ORDER-ID` become order_id."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    plain = re.sub(r"\W+|_+", "_", spaced).strip("_").lower()
    return f"c_{plain}" if not plain or plain[0].isdigit() else plain


def guess_type(values: Iterable[str | None]) -> str:
    """The narrowest type that holds every value of the sample without loss."""
    present = [value for value in values if value]
    if not present:
        return "string"
    if all(value.lower() in ("true", "false") for value in present):
        return "boolean"
    if number := _number_type(present):
        return number
    if _all_parse(present, date.fromisoformat, re.compile(r"\d{4}-\d{2}-\d{2}")):
        return "date"
    if _all_parse(present, datetime.fromisoformat, _TIMESTAMP):
        return "timestamp"
    return "string"


def _number_type(values: Sequence[str]) -> str | None:
    parts = [_NUMBER.fullmatch(value) for value in values]
    whole = max((len(found[1]) for found in parts if found), default=0)
    scale = max((len(found[2] or "") for found in parts if found), default=0)
    if None in parts or whole + scale > 38:
        return None
    if scale == 0 and all(abs(int(value)) <= _LARGEST_BIGINT for value in values):
        return "bigint"
    # With room for values that are not in the sample.
    return f"decimal({18 if whole + scale <= 18 else 38},{scale})"


def _all_parse(values: Sequence[str], parse: Callable[[str], object], shape: re.Pattern[str]) -> bool:
    try:
        return all(shape.fullmatch(value) and parse(value) for value in values)
    except ValueError:
        return False


def _unused(name: str, taken: set[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free


def with_other_separator(source: SourceConfig, columns: Sequence[ColumnConfig]) -> SourceConfig | None:
    """The source with the separator of a header that was read as one column; None if it is one column."""
    if len(columns) != 1:
        return None
    header = columns[0].source or columns[0].name
    separator = max(_OTHER_SEPARATORS, key=header.count)
    if separator not in header:
        return None
    return source.model_copy(update={"options": {**source.options, "sep": separator}})
