"""XML: every `row_tag` element is a row. Leaves are strings; attribute `a` is column `_a`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.errors import SourceError
from tallymark.sources.formats.inferred import infer
from tallymark.sources.formats.scan import ABSENT, CORRUPT, Request, named, options_for, positioned


def read(request: Request) -> DataFrame | None:
    row_tag = request.source.row_tag or request.source.options.get("rowTag")
    if not row_tag:
        raise SourceError(
            "source: format xml needs row_tag, the element that is a row",
            hint="for <orders><order>…</order></orders> write `row_tag: order`",
        )
    options = options_for(request.source, {"inferSchema": "false"})
    options["rowtag"] = str(row_tag)
    found = infer(request, "xml", options)
    if found is None:
        return None
    corrupt = F.coalesce(F.col(CORRUPT), F.col(ABSENT))
    return positioned(found.read(found.fields), [named(field.name) for field in found.fields], corrupt)
