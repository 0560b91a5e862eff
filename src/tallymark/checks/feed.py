"""What the rows of a change feed must hold, which depends on what each of them does.

| event | key | operation, sequence | other required values |
|---|---|---|---|
| insert, update | needed | needed | needed |
| delete | needed | needed | – |
| truncate | – | needed | – |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tallymark.model.settings import MergeSettings, Operation, Strategy


@dataclass(frozen=True)
class Feed:
    operation_column: str
    sequence_by: tuple[str, ...]
    effective_from: str | None
    deletes: tuple[str, ...]  # codes in lower case
    truncates: tuple[str, ...]
    known: tuple[str, ...]

    @classmethod
    def of(cls, settings: MergeSettings) -> Feed | None:
        """None: the rows are no changes."""
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
        """What every event has."""
        effective = () if self.effective_from is None else (self.effective_from,)
        return (self.operation_column, *self.sequence_by, *effective)

    def problems(self, name: str, value: Column) -> Iterator[Column]:
        """Of a value in column `name`, whatever the event does."""
        if _same(name, self.operation_column):
            yield F.when(value.isNull(), F.lit("null operation"))
            unknown = F.concat(F.lit("unknown operation '"), value.cast("string"), F.lit("'"))
            yield F.when(~_code(value).isin(*self.known), unknown)
        elif any(_same(name, column) for column in self.sequence_by):
            yield F.when(value.isNull(), F.lit("null sequence"))
        elif self.effective_from is not None and _same(name, self.effective_from):
            yield F.when(value.isNull(), F.lit("null effective time"))

    def needs_key(self, operation: Column) -> Column:
        return _is_none_of(operation, self.truncates)

    def needs_values(self, operation: Column) -> Column:
        return _is_none_of(operation, (*self.deletes, *self.truncates))


def _is_none_of(operation: Column, codes: tuple[str, ...]) -> Column:
    """True for a missing operation: what else the row lacks is told too."""
    return F.coalesce(~_code(operation).isin(*codes), F.lit(True)) if codes else F.lit(True)


def _code(operation: Column) -> Column:
    return F.lower(F.trim(operation.cast("string")))


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
