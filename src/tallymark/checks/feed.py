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

from tallymark.checks.text import Sql
from tallymark.model.settings import MergeSettings, Operation, Strategy
from tallymark.model.sql_text import literals


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

    def problems(self, name: str, value: Sql) -> Iterator[Sql]:
        """Of a value in column `name`, whatever the event does."""
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
    """True for a missing operation: what else the row lacks is told too."""
    return f"coalesce(NOT ({_code(operation)} IN ({literals(codes)})), true)" if codes else "true"


def _code(operation: Sql) -> Sql:
    return f"lower(trim(CAST({operation} AS string)))"


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
