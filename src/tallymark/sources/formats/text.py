"""Lines: `text` gives one column, `fixed_width` cuts it by position."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tallymark.model.plan import ROW_BLOCK, ROW_ORDER
from tallymark.sources.encodings import is_utf8, is_wide, java_name
from tallymark.sources.formats.scan import CORRUPT, PATH, Request, load, named, options_for, positioned

_VALUE = "value"
_LINE_BREAK = r"\r\n|\r|\n"


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
        # Spark keeps the bytes of a line as they are; everything after this expects proper text.
        proper = F.make_valid_utf8(value)
        return positioned(frame, [proper.alias(_VALUE)], F.when(~F.is_valid_utf8(value), proper))
    # Undecodable bytes become U+FFFD as in the other formats, instead of failing the whole load.
    request.spark.conf.set("spark.sql.legacy.codingErrorAction", "true")
    decoded = F.decode(value.cast("binary"), java_name(encoding, request.spark))
    whole = positioned(frame, [decoded.alias(_VALUE)])
    return _split(whole) if is_wide(encoding) else whole


def _split(documents: DataFrame) -> DataFrame:
    """Lines of whole files, numbered: where a line break is not one byte, Spark cannot find them."""
    text = F.regexp_replace(named(_VALUE), r"^\x{FEFF}|(?:\r\n|\r|\n)\z", "")
    numbered = documents.select(F.posexplode(F.split(text, _LINE_BREAK)), CORRUPT, PATH, ROW_BLOCK)
    return numbered.select(
        F.col("col").alias(_VALUE), CORRUPT, PATH, ROW_BLOCK, F.col("pos").cast("bigint").alias(ROW_ORDER)
    )
