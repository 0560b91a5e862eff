"""XML: every `row_tag` element is a row. Leaves are strings; attribute `a` is column `_a`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tallymark.errors import SourceError
from tallymark.sources.encodings import is_utf8, java_name
from tallymark.sources.failures import blame
from tallymark.sources.formats.scan import ABSENT, CORRUPT, Request, load, named, options_for, positioned


def read(request: Request) -> DataFrame | None:
    row_tag = request.source.row_tag or request.source.options.get("rowTag")
    if not row_tag:
        raise SourceError(
            "source: format xml needs row_tag, the element that is a row",
            hint="for <orders><order>…</order></orders> write `row_tag: order`",
        )
    options = options_for(request.source, {"inferSchema": "false"})
    options["rowtag"] = str(row_tag)
    if not is_utf8(request.source.encoding):
        options["encoding"] = java_name(request.source.encoding, request.spark)
    files = [file for file in request.files if file.size > 0]
    if not files:
        return None
    try:
        found = load(request, "xml", options, files).schema
    except Exception as error:
        raise blame(error, files, lambda file: load(request, "xml", options, [file])) from error
    if not found.fields:
        return None
    wanted = [field for field in found.fields if field.name != CORRUPT]
    hidden = [StructField(ABSENT, StringType()), StructField(CORRUPT, StringType())]
    frame = load(request, "xml", options, files, StructType([*wanted, *hidden]))
    # Spark refuses a query on the corrupt column alone, so another one goes with it.
    corrupt = F.coalesce(F.col(CORRUPT), F.col(ABSENT))
    return positioned(frame, [named(field.name) for field in wanted], corrupt)
