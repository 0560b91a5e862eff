"""XML: every `row_tag` element is a row. Leaves are strings; attribute `a` is column `_a`."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tallymark.errors import SourceError
from tallymark.sources.formats.inferred import infer
from tallymark.sources.formats.scan import ABSENT, CORRUPT, Request, options_for, positioned_as_it_is


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
    corrupt = f"coalesce({CORRUPT}, {ABSENT})"
    names = [field.name for field in found.fields]
    return positioned_as_it_is(found.read(found.fields), names, corrupt)
