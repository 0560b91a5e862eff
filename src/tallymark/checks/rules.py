"""The rules under `columns`: their types and patterns, before any row is read."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from tallymark.checks.text import is_temporal
from tallymark.checks.types import KNOWN_TYPES, parse_type
from tallymark.config.pipeline import ColumnConfig
from tallymark.errors import ConfigError


def declared_type(column: str, text: str) -> t.DataType:
    try:
        return parse_type(text)
    except ValueError as problem:
        near = difflib.get_close_matches(text.strip().lower(), KNOWN_TYPES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"types are {', '.join(KNOWN_TYPES)}"
        raise ConfigError(
            f"columns: {column}: {text} is not a type: {problem}",
            hint=hint,
            facts={"column": column, "type": text},
        ) from None


def check_patterns(frame: DataFrame, rules: Sequence[ColumnConfig]) -> None:
    """Spark finds a wrong pattern only when it meets the first row, and then in the middle of a job."""
    for rule in rules:
        if rule.format is None:
            continue
        if rule.type is None or not is_temporal(declared_type(rule.name, rule.type)):
            raise ConfigError(
                f"columns: {rule.name}: a format is for dates and timestamps, and the type is "
                f"{rule.type or 'not given'}",
                hint="give `type: date`, `timestamp` or `timestamp_ntz`, or remove `format`",
                facts={"column": rule.name, "format": rule.format},
            )
        try:
            probe = F.try_to_timestamp(F.lit("2026-01-01"), F.lit(rule.format))
            frame.sparkSession.range(1).select(probe).collect()
        except PySparkException as error:
            raise ConfigError(
                f"columns: {rule.name}: {rule.format} is not a date pattern: {str(error).splitlines()[0]}",
                hint="letters are yyyy MM dd HH mm ss SSS XXX, other text goes in single quotes",
                facts={"column": rule.name, "format": rule.format},
            ) from None
