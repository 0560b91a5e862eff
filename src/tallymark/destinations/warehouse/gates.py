"""Gates in a SQL database: what they find in a relation of the open transaction.

The rules are written for every engine. A quality test is Spark SQL, so it is translated; what might mean
something else to the database is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tallymark.destinations.queries import (
    count_column,
    is_in_summary,
    offending_query,
    summary_query,
    with_moments,
)
from tallymark.destinations.warehouse.engine import Name, quoted, quoted_list
from tallymark.destinations.warehouse.translate import ReadTable, translated
from tallymark.destinations.warehouse.work import Work, reading, table_of
from tallymark.errors import ConfigError, DestinationError
from tallymark.model.gate import AFTER, MOST_SAMPLES, Gate, GateResult, QueryCheck, result_of


@dataclass(frozen=True)
class GateQueries:
    work: Work
    relation: Name  # the table as it will be

    def results(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        found = self._counts(gates)
        return tuple(
            result_of(gate, found[position], self._samples(gate) if found[position] else ())
            for position, gate in enumerate(gates)
        )

    def _counts(self, gates: Sequence[Gate]) -> dict[int, int]:
        counts: dict[int, int] = {}
        summary = summary_query(gates)
        if summary is not None:
            summed = [position for position, gate in enumerate(gates) if is_in_summary(gate)]
            assert [each.alias for each in summary.selects] == list(map(count_column, summed))  # noqa: S101
            (row,) = self.work.session.fetch(self._rendered(summary))
            counts |= {position: int(str(found)) for position, found in zip(summed, row, strict=True)}
        for position, gate in enumerate(gates):
            if not is_in_summary(gate):
                counts[position] = self._count(gate)
        return counts

    def _count(self, gate: Gate) -> int:
        sql = f"SELECT COUNT(*) FROM ({self._offending(gate)}) AS q"
        try:
            return int(str(self.work.session.fetch(sql)[0][0]))
        except DestinationError as error:
            if type(error) is not DestinationError or not _is_written(gate):  # busy, moved: not the query's
                raise
            raise ConfigError(
                f"{gate.rule}: {self.work.engine.capabilities.name} refuses the query: {error.message}",
                hint="write it with what Spark and this database both have, then run `tallymark plan`",
            ) from error

    def _samples(self, gate: Gate) -> list[dict[str, object]]:
        names, rows = self.work.session.named(
            f"SELECT * FROM ({self._offending(gate)}) AS q LIMIT {MOST_SAMPLES}"
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _offending(self, gate: Gate) -> str:
        written = gate.check.written if isinstance(gate.check, QueryCheck) else ""
        return self._translated(gate, written) if written else self._rendered(offending_query(gate.check))

    def _rendered(self, query: exp.Query) -> str:
        engine = self.work.engine
        mine = reading(with_moments(query, engine.moment), {AFTER: table_of(self.relation)})
        return self.work.rendered(mine)

    def _translated(self, gate: Gate, written: str) -> str:
        engine = self.work.engine
        try:
            table = ReadTable(self.relation, tuple(self.work.written))
            return translated(engine, written, {AFTER: table}, for_view=False)
        except ValueError as error:
            raise ConfigError(
                f"{gate.rule}: cannot be translated to {engine.capabilities.name}: {error}",
                hint="write it with what Spark and this database both have, then run `tallymark plan`",
            ) from error


def _is_written(gate: Gate) -> bool:
    return isinstance(gate.check, QueryCheck) and bool(gate.check.written)


def after_relation(work: Work, rows: str) -> Name:
    """A view of this session over the query `rows`: for a plan that is only looked at."""
    name = Name(None, AFTER, AFTER)
    names = quoted_list([column.name for column in work.written])
    work.session.execute(f"CREATE TEMP VIEW {quoted(AFTER)} ({names}) AS {rows}")
    return name
