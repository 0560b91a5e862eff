"""Formats of plain text: csv, text (each line is a value) and fixed_width (lines are cut by position).

Everything is a string here; the checks cast later and name what does not fit. Files with delimiters are
grouped by their header, and each group is read by its own names: Spark takes the columns of many files by
position, so that a file with reordered columns would be loaded into the wrong ones.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.model.plan import ROW_BLOCK, ROW_ORDER
from tallymark.model.types import quoted
from tallymark.sources.formats.scan import (
    CORRUPT,
    PATH,
    Options,
    Request,
    is_on,
    load,
    named,
    options_for,
    positioned,
    positioned_unchanged,
    united,
    user_options,
)
from tallymark.sources.heads import Dialect, first_records, has_plain_lines, is_utf8, is_wide, java_name

# Spark reads this text as NULL; with its default, "", a quoted empty string would be lost.
_NULL = "\ue000tallymark-null\ue001"
_NOT_ABOUT_LINES = {"header", "sep", "delimiter"}
_VALUE = "value"  # the line
_LINE_BREAK = r"\r\n|\r|\n"


def read_csv(request: Request) -> DataFrame | None:
    options = _options(request)
    frames = []
    for names, files in _by_columns(request, options).items():
        fields = [StructField(name, StringType()) for name in (*names, CORRUPT)]
        # Spark refuses a query on the corrupt column alone, so it reads another one too.
        corrupt = f"CASE WHEN {CORRUPT} IS NOT NULL THEN coalesce({CORRUPT}, {quoted(names[0])}) END"
        for several_tasks, some in _by_lines(request, files).items():
            how = {**options, "multiline": "false"} if several_tasks else options
            frame = load(request, "csv", how, some, StructType(fields))
            frames.append(positioned_unchanged(frame, names, corrupt))
    return united(frames)


def _by_lines(request: Request, files: list[SourceFile]) -> dict[bool, list[SourceFile]]:
    """By whether each line is a record. If the user sets options about quotes and lines, they decide."""
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
            # Which columns a query selects must not decide which rows are malformed.
            "columnPruning": "false",
            # Spark allocates 1 MiB for every file: 5,000 small files took 13 s, and take 6 s so.
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
            f"source.options: multiLine: false does not work with encoding {source.encoding}",
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
        raise UnreadableFile(file.path, f"column {original} occurs {times} times in the header", hint=hint)
    return tuple(names)


def numbered_names(request: Request, fields: int) -> tuple[str, ...]:
    """Declared columns come first, in their order; a record with fewer fields is malformed."""
    declared = [rule.source or rule.name for rule in request.rules]
    return (*declared, *(f"_c{i}" for i in range(len(declared), fields)))


def read_text(request: Request) -> DataFrame | None:
    lines = _lines(request)
    name = (request.rules[0].source or request.rules[0].name) if len(request.rules) == 1 else _VALUE
    return lines.withColumnRenamed(_VALUE, name) if lines else None


def read_fixed_width(request: Request) -> DataFrame | None:
    fields = request.source.fields
    lines = _lines(request)
    if lines is None:
        return None
    value = F.col(_VALUE)
    columns = [_cut(value, field.start, field.width).alias(field.name) for field in fields]
    too_short = F.length(value) < max(field.start for field in fields)
    corrupt = F.coalesce(F.col(CORRUPT), F.when(too_short, value)).alias(CORRUPT)
    return lines.where(value != "").select(*columns, corrupt, PATH, ROW_BLOCK, ROW_ORDER)


def _cut(value: Column, start: int, width: int) -> Column:
    return F.nullif(F.trim(F.substring(value, start, width)), F.lit(""))


def _lines(request: Request) -> DataFrame | None:
    files = [file for file in request.files if file.size > 0]
    if not files:
        return None
    encoding = request.source.encoding
    options = options_for(request.source, {"wholetext": "true"} if is_wide(encoding) else {})
    frame = load(request, "text", options, files, StructType([StructField(_VALUE, StringType())]))
    value = F.col(_VALUE)
    if is_utf8(encoding):
        if request.source.encoding_errors == "allow":
            return positioned(frame, [F.make_valid_utf8(value).alias(_VALUE)])
        # Spark keeps the bytes of a line as they are; everything after this expects valid text.
        valid = F.make_valid_utf8(value)
        return positioned(frame, [valid.alias(_VALUE)], F.when(~F.is_valid_utf8(value), valid))
    # Bytes that do not decode become U+FFFD, as in the other formats, and do not fail the load.
    request.spark.conf.set("spark.sql.legacy.codingErrorAction", "true")
    decoded = F.decode(value.cast("binary"), java_name(encoding, request.spark))
    whole = positioned(frame, [decoded.alias(_VALUE)])
    return _split(whole) if is_wide(encoding) else whole


def _split(documents: DataFrame) -> DataFrame:
    """Lines of whole files, numbered: Spark cannot find line breaks that are more than one byte."""
    text = F.regexp_replace(named(_VALUE), r"^\x{FEFF}|(?:\r\n|\r|\n)\z", "")
    numbered = documents.select(F.posexplode(F.split(text, _LINE_BREAK)), CORRUPT, PATH, ROW_BLOCK)
    return numbered.select(
        F.col("col").alias(_VALUE), CORRUPT, PATH, ROW_BLOCK, F.col("pos").cast("bigint").alias(ROW_ORDER)
    )
