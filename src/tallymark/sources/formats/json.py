"""JSON: one record per line (ndjson), or whole documents (json). Nested values stay nested.

What numbers become: an integer is bigint, a larger one decimal(p,0) up to 38 digits, another number
double. A declared column is read as the text of the file, so that its cast is exact.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, StringType, StructField

from tallymark.errors import SourceError
from tallymark.sources.encodings import is_utf8, python_name
from tallymark.sources.formats.inferred import infer
from tallymark.sources.formats.scan import (
    ABSENT,
    CORRUPT,
    Options,
    Request,
    as_text,
    named,
    options_for,
    positioned,
)

_NESTED = ("struct", "array", "map", "variant")


def read_lines(request: Request) -> DataFrame | None:
    options = {"multiLine": "false"}
    if not is_utf8(request.source.encoding):
        options["lineSep"] = "\n"  # Spark asks for it; a \r before it is white space to JSON
        if python_name(request.source.encoding) in ("utf-16", "utf-32"):
            raise SourceError(
                f"source.encoding: Spark cannot find lines in {request.source.encoding}",
                hint="say utf-16le or utf-16be, or use format json",
            )
    return _read(request, options_for(request.source, options))


def read_documents(request: Request) -> DataFrame | None:
    return _read(request, options_for(request.source, {"multiLine": "true"}))


def _read(request: Request, options: Options) -> DataFrame | None:
    found = infer(request, "json", options)
    if found is None:
        return None
    inferred = found.fields
    frame = found.read([StructField(f.name, _type_to_read(request, f)) for f in inferred])
    corrupt = F.coalesce(F.col(CORRUPT), F.col(ABSENT))
    doubles = [f.name for f in inferred if f.dataType == DoubleType() and not _is_declared(request, f)]
    if doubles:
        inexact = F.greatest(F.lit(False), *(_is_inexact(named(name)) for name in doubles))
        corrupt = F.coalesce(corrupt, F.when(inexact, as_text([named(f.name) for f in inferred])))
    return positioned(frame, [_column(f, doubles) for f in inferred], corrupt)


def _is_declared(request: Request, field: StructField) -> bool:
    rule = request.rule(field.name)
    return rule is not None and rule.type is not None and not rule.type.lower().startswith(_NESTED)


def _type_to_read(request: Request, field: StructField) -> DataType:
    if _is_declared(request, field) or field.dataType == DoubleType():
        return StringType()
    return field.dataType


def _column(field: StructField, doubles: list[str]) -> Column:
    column = named(field.name)
    return column.try_cast("double").alias(field.name) if field.name in doubles else column


def _is_inexact(text: Column) -> Column:
    """An integer that double would round, or a number beyond its range: never load it changed."""
    double = text.try_cast("double")
    whole = text.rlike("^-?[0-9]+$") & (
        text.try_cast("decimal(38,0)").isNull()
        | (text.try_cast("decimal(38,0)") != double.try_cast("decimal(38,0)"))
    )
    too_large = double.isin(float("inf"), float("-inf")) & text.rlike("[0-9]")
    return F.coalesce((F.length(text) > 15) & whole, F.lit(False)) | F.coalesce(too_large, F.lit(False))
