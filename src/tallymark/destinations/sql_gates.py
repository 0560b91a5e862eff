"""Gates in a SQL database: what they find in a relation of the open transaction.

The rules are written for every engine. A quality test is Spark SQL, so it is translated; what has no
translation is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from tallymark.destinations.gate_queries import (
    column_of,
    is_summed,
    offending_query,
    summary_query,
    with_moments,
)
from tallymark.destinations.sql_engine import Name, quoted, quoted_list
from tallymark.destinations.sql_work import Work, reading, table_of
from tallymark.errors import ConfigError, DestinationError
from tallymark.model.gate import AFTER, MOST_SAMPLES, Gate, GateResult, QueryCheck, result_of

_NUMBERS_KEPT_AS_TEXTS = "DECIMAL_TEXT"
_TIMES_KEPT_AS_TEXTS = "_TEXT"


@dataclass(frozen=True)
class SqlGates:
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
            summed = [position for position, gate in enumerate(gates) if is_summed(gate)]
            assert [each.alias for each in summary.selects] == list(map(column_of, summed))  # noqa: S101
            (row,) = self.work.session.fetch(self._rendered(summary))
            counts |= {position: int(str(found)) for position, found in zip(summed, row, strict=True)}
        for position, gate in enumerate(gates):
            if not is_summed(gate):
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
        query = offending_query(gate.check)
        return self._translated(gate, query) if _is_written(gate) else self._rendered(query)

    def _rendered(self, query: exp.Query) -> str:
        engine = self.work.engine
        mine = reading(with_moments(query, engine.moment), {AFTER: table_of(self.relation)})
        return self.work.rendered(mine)

    def _translated(self, gate: Gate, query: exp.Query) -> str:
        engine = self.work.engine
        try:
            mine = self._with_times(self._with_names(query))
            mine = reading(mine, {AFTER: self._for_people()})
            return mine.sql(dialect=engine.dialect, unsupported_level=ErrorLevel.RAISE)
        except (SqlglotError, ValueError) as error:
            raise ConfigError(
                f"{gate.rule}: cannot be said in the SQL of {engine.capabilities.name}: {error}",
                hint="write it with what Spark and this database both have, then run `tallymark plan`",
            ) from error

    def _with_names(self, query: exp.Query) -> exp.Query:
        """Spark does not heed the case of names; the database may, so each is written as the table has it."""
        spelled = {column.name.casefold(): column.name for column in self.work.plan.columns}
        mine = query.copy()
        for name in list(mine.find_all(exp.Identifier)):
            if name.name.casefold() in spelled and not isinstance(name.parent, exp.Table):
                name.replace(exp.to_identifier(spelled[name.name.casefold()], quoted=True))
        return mine

    def _with_times(self, query: exp.Query) -> exp.Query:
        """Where times are kept as texts, a time in a query must be the same text, or every comparison would
        be wrong without a word."""
        native = self.work.engine.native_type("timestamp")
        if not native.endswith(_TIMES_KEPT_AS_TEXTS):
            return query
        for cast in list(query.find_all(exp.Cast)):
            if cast.to.this not in exp.DataType.TEMPORAL_TYPES or cast.is_type("date"):
                continue
            if not isinstance(cast.this, exp.Literal):
                raise ValueError("only a text in quotes can be made a timestamp")
            at = datetime.fromisoformat(cast.this.name)
            cast.replace(self.work.engine.moment(at if at.tzinfo else at.replace(tzinfo=UTC)))
        return query

    def _for_people(self) -> exp.Expr:
        """Where decimals are kept as texts, a query of people's sees numbers."""
        if not any(column.native.startswith(_NUMBERS_KEPT_AS_TEXTS) for column in self.work.written):
            return table_of(self.relation)
        values = [
            exp.alias_(exp.cast(_column(c.name), "double"), c.name, quoted=True)
            if c.native.startswith(_NUMBERS_KEPT_AS_TEXTS)
            else _column(c.name)
            for c in self.work.written
        ]
        return exp.select(*values).from_(table_of(self.relation)).subquery()


def _is_written(gate: Gate) -> bool:
    return isinstance(gate.check, QueryCheck) and bool(gate.check.written)


def _column(name: str) -> exp.Expr:
    return exp.column(name, quoted=True)


def after_relation(work: Work, rows: str) -> Name:
    """A view of this session over the query `rows`: for a plan that is only looked at."""
    name = Name(None, AFTER, AFTER)
    names = quoted_list([column.name for column in work.written])
    work.session.execute(f"CREATE TEMP VIEW {quoted(AFTER)} ({names}) AS {rows}")
    return name
