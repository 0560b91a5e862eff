"""Gates in a database: queries inside the open transaction.

Rules come as queries for every engine. A quality test is written in Spark SQL, so it is translated; what the
database might answer differently is refused.
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
from tallymark.destinations.warehouse.engine import TableName
from tallymark.destinations.warehouse.load_context import LoadContext, table_expression, with_relations
from tallymark.destinations.warehouse.translate import ReadTable, translated
from tallymark.errors import ConfigError, DestinationError
from tallymark.model.gate import AFTER, MOST_SAMPLES, Gate, GateResult, QueryCheck, result_of


@dataclass(frozen=True)
class GateQueries:
    load: LoadContext
    after: TableName  # the table, or a view of it, as it is after the load

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
            (row,) = self.load.session.fetch(self._rendered(summary))
            counts |= {position: int(str(found)) for position, found in zip(summed, row, strict=True)}
        for position, gate in enumerate(gates):
            if not is_in_summary(gate):
                counts[position] = self._count(gate)
        return counts

    def _count(self, gate: Gate) -> int:
        sql = f"SELECT COUNT(*) FROM ({self._offending(gate)}) AS q"
        try:
            return int(str(self.load.session.fetch(sql)[0][0]))
        except DestinationError as error:
            if type(error) is not DestinationError or not _is_written(
                gate
            ):  # busy or moved: not caused by the query
                raise
            raise ConfigError(
                f"{gate.rule}: {self.load.engine.capabilities.name} refuses the query: {error.message}",
                hint="use only SQL that Spark and this database share, then run `tallymark plan`",
            ) from error

    def _samples(self, gate: Gate) -> list[dict[str, object]]:
        names, rows = self.load.session.fetch_named(
            f"SELECT * FROM ({self._offending(gate)}) AS q LIMIT {MOST_SAMPLES}"
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _offending(self, gate: Gate) -> str:
        written = gate.check.written if isinstance(gate.check, QueryCheck) else ""
        return self._translated(gate, written) if written else self._rendered(offending_query(gate.check))

    def _rendered(self, query: exp.Query) -> str:
        engine = self.load.engine
        over_table = with_relations(with_moments(query, engine.moment), {AFTER: table_expression(self.after)})
        return self.load.rendered(over_table)

    def _translated(self, gate: Gate, written: str) -> str:
        engine = self.load.engine
        try:
            table = ReadTable(self.after, tuple(self.load.written))
            return translated(engine, written, {AFTER: table}, for_view=False)
        except ValueError as error:
            raise ConfigError(
                f"{gate.rule}: cannot be translated to {engine.capabilities.name}: {error}",
                hint="use only SQL that Spark and this database share, then run `tallymark plan`",
            ) from error


def _is_written(gate: Gate) -> bool:
    return isinstance(gate.check, QueryCheck) and bool(gate.check.written)


def view_of_rows_after(load: LoadContext, rows: str) -> TableName:
    """A temporary view over the query `rows`: for a plan that is only shown."""
    name = TableName(None, AFTER, AFTER)
    names = load.sql.quote_list([column.name for column in load.written])
    load.session.execute(f"CREATE TEMP VIEW {load.sql.quote(AFTER)} ({names}) AS {rows}")
    return name
