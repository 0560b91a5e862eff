"""Delimited text. Everything is a string here; the checks cast later and name what does not fit.

Files are grouped by their header, and each group is read by its own names: Spark takes the columns of
many files by position, so that a file with reordered columns would be loaded into the wrong ones.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.model.sql_text import quoted
from tallymark.sources.encodings import is_wide, java_name
from tallymark.sources.formats.scan import (
    CORRUPT,
    Options,
    Request,
    is_on,
    load,
    options_for,
    positioned_as_it_is,
    united,
    user_options,
)
from tallymark.sources.heads import Dialect, first_records
from tallymark.sources.plain_lines import has_plain_lines

# Spark makes NULL of what equals this; with its own default, "", a quoted empty text would be lost.
_NULL = "\ue000tallymark-null\ue001"
_NOT_ABOUT_LINES = {"header", "sep", "delimiter"}


def read(request: Request) -> DataFrame | None:
    options = _options(request)
    frames = []
    for names, files in _by_columns(request, options).items():
        fields = [StructField(name, StringType()) for name in (*names, CORRUPT)]
        # Spark refuses a query on the corrupt column alone, so another one goes with it.
        corrupt = f"CASE WHEN {CORRUPT} IS NOT NULL THEN coalesce({CORRUPT}, {quoted(names[0])}) END"
        for several_tasks, some in _by_lines(request, files).items():
            how = {**options, "multiline": "false"} if several_tasks else options
            frame = load(request, "csv", how, some, StructType(fields))
            frames.append(positioned_as_it_is(frame, names, corrupt))
    return united(frames)


def _by_lines(request: Request, files: list[SourceFile]) -> dict[bool, list[SourceFile]]:
    """Whether each line is a record. What the user says of quotes and lines is not second-guessed."""
    groups: dict[bool, list[SourceFile]] = {}
    usual = user_options(request.source).keys() <= _NOT_ABOUT_LINES
    for file in files:
        groups.setdefault(usual and has_plain_lines(file, request.source.encoding), []).append(file)
    return groups


def _options(request: Request) -> Options:
    source = request.source
    tabs = any(".tsv" in file.path.lower().rpartition("/")[2] for file in request.files)
    options = options_for(
        source,
        {
            "header": "true",
            "mode": "PERMISSIVE",
            "multiLine": "true",
            "sep": "\t" if tabs else ",",
            "nullValue": _NULL,
            "encoding": java_name(source.encoding, request.spark),
            # What columns a query wants must not decide which rows are malformed.
            "columnPruning": "false",
            # Spark takes 1 MiB for every file: 5,000 small files took 13 s, so 6 s.
            "inputBufferSize": "65536",
        },
    )
    if "delimiter" in options:
        options["sep"] = options.pop("delimiter")
    options["sep"] = options["sep"].replace("\\t", "\t")
    quote = options.setdefault("quote", '"')
    options.setdefault("escape", quote or "\\")  # RFC 4180 doubles quotes; Spark's default is a backslash
    if is_wide(source.encoding) and not is_on(options, "multiLine"):
        raise SourceError(
            f"source.options: multiLine: false cannot be used with encoding {source.encoding}",
            hint="remove multiLine from source.options",
        )
    return options


def _by_columns(request: Request, options: Options) -> dict[tuple[str, ...], list[SourceFile]]:
    dialect = Dialect(options["sep"], options["quote"], options.get("comment", ""), request.source.encoding)
    paths = [file.path for file in request.files if file.size > 0]
    records = first_records(paths, dialect, lambda: request.spark)
    has_header = is_on(options, "header")
    groups: dict[tuple[str, ...], list[SourceFile]] = {}
    for file in request.files:
        record = records.get(file.path)
        if record is not None:
            names = column_names(file, record) if has_header else numbered_names(request, len(record))
            groups.setdefault(names, []).append(file)
    return groups


def column_names(file: SourceFile, names: list[str]) -> tuple[str, ...]:
    hint = "correct the header, or set `options: {header: false}` and name the columns in `columns`"
    if "" in names:
        raise UnreadableFile(file.path, f"column {names.index('') + 1} has no name in the header", hint=hint)
    name, times = Counter(name.casefold() for name in names).most_common(1)[0]
    if times > 1:
        original = next(n for n in names if n.casefold() == name)
        raise UnreadableFile(file.path, f"column {original} is in the header {times} times", hint=hint)
    return tuple(names)


def numbered_names(request: Request, fields: int) -> tuple[str, ...]:
    """Declared columns come first, in their order; a record with fewer fields is malformed."""
    declared = [rule.source or rule.name for rule in request.rules]
    return (*declared, *(f"_c{i}" for i in range(len(declared), fields)))
