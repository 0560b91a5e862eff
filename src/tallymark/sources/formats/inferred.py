"""Formats whose files do not name their columns up front: Spark finds them by reading the files once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from tallymark.model.batch import SourceFile
from tallymark.sources.encodings import is_utf8, java_name
from tallymark.sources.failures import blame
from tallymark.sources.formats.scan import ABSENT, CORRUPT, Options, Request, load


@dataclass(frozen=True)
class Inferred:
    request: Request
    spark_format: str
    options: Options
    files: Sequence[SourceFile]
    fields: tuple[StructField, ...]

    def read(self, fields: Sequence[StructField]) -> DataFrame:
        """With the corrupt column, and one that no record has: Spark refuses a query on the former alone."""
        hidden = [StructField(ABSENT, StringType()), StructField(CORRUPT, StringType())]
        schema = StructType([*fields, *hidden])
        return load(self.request, self.spark_format, self.options, self.files, schema)


def infer(request: Request, spark_format: str, options: Options) -> Inferred | None:
    """None when the files hold neither columns nor rows."""
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
