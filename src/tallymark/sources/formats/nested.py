"""JSON and XML: values may be nested, and Spark finds the columns by reading the files once.

JSON: one record per line (ndjson), or whole documents (json). An integer becomes bigint, a larger one
decimal(p,0) up to 38 digits, another number double. A declared column is read as the text of the file, so
that its cast is exact. XML: every `row_tag` element is a row. Leaves are strings; attribute `a` is column
`_a`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, StringType, StructField, StructType

from tallymark.errors import SourceError
from tallymark.model.batch import SourceFile
from tallymark.sources.formats.scan import (
    ABSENT,
    CORRUPT,
    Options,
    Request,
    as_text,
    load,
    named,
    options_for,
    positioned,
    positioned_unchanged,
)
from tallymark.sources.heads import is_utf8, java_name, python_name
from tallymark.sources.read_failures import blame

_NESTED_TYPES = ("struct", "array", "map", "variant")


@dataclass(frozen=True)
class Inferred:
    """Files, and the columns that Spark found in them."""

    request: Request
    spark_format: str
    options: Options
    files: Sequence[SourceFile]
    fields: tuple[StructField, ...]

    def read(self, fields: Sequence[StructField]) -> DataFrame:
        """Adds the corrupt column, and one that no record has: Spark refuses a query on the former alone."""
        hidden = [StructField(ABSENT, StringType()), StructField(CORRUPT, StringType())]
        schema = StructType([*fields, *hidden])
        return load(self.request, self.spark_format, self.options, self.files, schema)


def infer(request: Request, spark_format: str, options: Options) -> Inferred | None:
    """None if the files have neither columns nor rows."""
    if not is_utf8(request.source.encoding):
        options = {**options, "encoding": java_name(request.source.encoding, request.spark)}
    files = [file for file in request.files if file.size > 0]
    if not files:
        return None
    try:
        found = load(request, spark_format, options, files).schema
    except Exception as error:
        raise blame(error, files, lambda file: load(request, spark_format, options, [file])) from error
    if not found.fields:
        return None
    fields = tuple(field for field in found.fields if field.name != CORRUPT)
    return Inferred(request, spark_format, options, files, fields)


def read_json_lines(request: Request) -> DataFrame | None:
    options = {"multiLine": "false"}
    if not is_utf8(request.source.encoding):
        options["lineSep"] = "\n"  # Spark requires it; a \r before it is white space in JSON
        if python_name(request.source.encoding) in ("utf-16", "utf-32"):
            raise SourceError(
                f"source.encoding: Spark cannot find the lines of a file in {request.source.encoding}",
                hint="set utf-16le or utf-16be, or use format json",
            )
    return _read_json(request, options_for(request.source, options))


def read_json_documents(request: Request) -> DataFrame | None:
    return _read_json(request, options_for(request.source, {"multiLine": "true"}))


def _read_json(request: Request, options: Options) -> DataFrame | None:
    found = infer(request, "json", options)
    if found is None:
        return None
    inferred = found.fields
    frame = found.read([StructField(f.name, _type_to_read_json(request, f)) for f in inferred])
    corrupt = F.coalesce(F.col(CORRUPT), F.col(ABSENT))
    doubles = [f.name for f in inferred if f.dataType == DoubleType() and not _is_declared(request, f)]
    if doubles:
        inexact = F.greatest(F.lit(False), *(_is_inexact(named(name)) for name in doubles))
        corrupt = F.coalesce(corrupt, F.when(inexact, as_text([named(f.name) for f in inferred])))
    return positioned(frame, [_column(f, doubles) for f in inferred], corrupt)


def _is_declared(request: Request, field: StructField) -> bool:
    rule = request.rule(field.name)
    return rule is not None and rule.type is not None and not rule.type.lower().startswith(_NESTED_TYPES)


def _type_to_read_json(request: Request, field: StructField) -> DataType:
    if _is_declared(request, field) or field.dataType == DoubleType():
        return StringType()
    return field.dataType


def _column(field: StructField, doubles: list[str]) -> Column:
    column = named(field.name)
    return column.try_cast("double").alias(field.name) if field.name in doubles else column


def _is_inexact(text: Column) -> Column:
    """An integer that a double would round, or a number beyond its range: it is not loaded changed."""
    double = text.try_cast("double")
    whole = text.rlike("^-?[0-9]+$") & (
        text.try_cast("decimal(38,0)").isNull()
        | (text.try_cast("decimal(38,0)") != double.try_cast("decimal(38,0)"))
    )
    too_large = double.isin(float("inf"), float("-inf")) & text.rlike("[0-9]")
    return F.coalesce((F.length(text) > 15) & whole, F.lit(False)) | F.coalesce(too_large, F.lit(False))


def read_xml(request: Request) -> DataFrame | None:
    row_tag = request.source.row_tag or request.source.options.get("rowTag")
    if not row_tag:
        raise SourceError(
            "source: format xml needs row_tag, the name of the element that is a row",
            hint="for <orders><order>…</order></orders> write `row_tag: order`",
        )
    options = options_for(request.source, {"inferSchema": "false"})
    options["rowtag"] = str(row_tag)
    found = infer(request, "xml", options)
    if found is None:
        return None
    corrupt = f"coalesce({CORRUPT}, {ABSENT})"
    names = [field.name for field in found.fields]
    return positioned_unchanged(found.read(found.fields), names, corrupt)
