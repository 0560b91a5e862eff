"""What rows must hold: the rules under `columns`, and what the events of a change feed need.

| event | key | operation, sequence | other required values |
|---|---|---|---|
| insert, update | needed | needed | needed |
| delete | needed | needed | – |
| truncate | – | needed | – |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from tallymark.checks.casts import Sql, data_type, is_temporal
from tallymark.config.pipeline_file import ColumnConfig
from tallymark.errors import ConfigError
from tallymark.model.settings import MergeSettings, Operation, Strategy
from tallymark.model.sql_text import literals


def declared_type(column: str, text: str) -> t.DataType:
    try:
        return data_type(text)
    except ValueError as problem:
        raise ConfigError(
            f"columns: {column}: {text} cannot be declared: {problem}",
            hint="see docs/reference/types.md for the types of columns",
            facts={"column": column, "type": text},
        ) from None


def check_patterns(frame: DataFrame, rules: Sequence[ColumnConfig]) -> None:
    """Before any row is read: Spark itself finds a wrong pattern at the first row, in the middle of a job."""
    for rule in rules:
        if rule.format is None:
            continue
        if rule.type is None or not is_temporal(declared_type(rule.name, rule.type)):
            raise ConfigError(
                f"columns: {rule.name}: `format` is for dates and timestamps, and the type is "
                f"{rule.type or 'not set'}",
                hint="set `type: date`, `timestamp` or `timestamp_ntz`, or remove `format`",
                facts={"column": rule.name, "format": rule.format},
            )
        try:
            probe = F.try_to_timestamp(F.lit("2026-01-01"), F.lit(rule.format))
            frame.sparkSession.range(1).select(probe).collect()
        except PySparkException as error:
            raise ConfigError(
                f"columns: {rule.name}: {rule.format} is not a date pattern: {str(error).splitlines()[0]}",
                hint="letters are yyyy MM dd HH mm ss SSS XXX; other text goes in single quotes",
                facts={"column": rule.name, "format": rule.format},
            ) from None


@dataclass(frozen=True)
class FeedRules:
    """What the events of a change feed must hold. Operation codes are in lower case."""

    operation_column: str
    sequence_by: tuple[str, ...]
    effective_from: str | None
    deletes: tuple[str, ...]
    truncates: tuple[str, ...]
    known: tuple[str, ...]

    @classmethod
    def of(cls, settings: MergeSettings) -> FeedRules | None:
        """None if the rows are not changes."""
        cdc = settings.cdc
        if settings.strategy is not Strategy.CDC or cdc is None:
            return None
        return cls(
            operation_column=cdc.operation_column,
            sequence_by=cdc.sequence_by,
            effective_from=settings.scd2.effective_from if cdc.history else None,
            deletes=tuple(cdc.codes_of(Operation.DELETE)),
            truncates=tuple(cdc.codes_of(Operation.TRUNCATE)),
            known=tuple(cdc.codes_of(*Operation)),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every event needs."""
        effective = () if self.effective_from is None else (self.effective_from,)
        return (self.operation_column, *self.sequence_by, *effective)

    def problems(self, name: str, value: Sql) -> Iterator[Sql]:
        """The problems that a value of column `name` may have, whatever the event does."""
        if _same(name, self.operation_column):
            yield f"CASE WHEN {value} IS NULL THEN 'null operation' END"
            unknown = f"concat('unknown operation ', chr(39), CAST({value} AS string), chr(39))"
            yield f"CASE WHEN NOT ({_code(value)} IN ({literals(self.known)})) THEN {unknown} END"
        elif any(_same(name, column) for column in self.sequence_by):
            yield f"CASE WHEN {value} IS NULL THEN 'null sequence' END"
        elif self.effective_from is not None and _same(name, self.effective_from):
            yield f"CASE WHEN {value} IS NULL THEN 'null effective time' END"

    def needs_key(self, operation: Sql) -> Sql:
        return _is_none_of(operation, self.truncates)

    def needs_values(self, operation: Sql) -> Sql:
        return _is_none_of(operation, (*self.deletes, *self.truncates))


def _is_none_of(operation: Sql, codes: tuple[str, ...]) -> Sql:
    """True for a missing operation, so that the other problems of the row are reported too."""
    return f"coalesce(NOT ({_code(operation)} IN ({literals(codes)})), true)" if codes else "true"


def _code(operation: Sql) -> Sql:
    return f"lower(trim(CAST({operation} AS string)))"


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
