"""From a query in Spark SQL to the SELECT of a database that gives the same rows, for views and tests.

1. every name is resolved against the columns of the inputs, and every `*` is written out
2. every expression gets its type; what engines understand differently is refused or said otherwise
   (`translation_words`)
3. relations become the tables that they stand for
4. the columns get the names that Spark would give them; provenance of the inputs is left out
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import TokenType

from tallymark.destinations.warehouse.engine import Engine, Name, NativeColumn
from tallymark.destinations.warehouse.translate_functions import Refused, said_in
from tallymark.destinations.warehouse.work import reading, table_of
from tallymark.model.table import is_provenance

_SPARK = "spark"
_NUMBERS_KEPT_AS_TEXTS = "DECIMAL_TEXT"
_RESULT = "tm_result"


@dataclass(frozen=True)
class ReadTable:
    name: Name
    columns: tuple[NativeColumn, ...]

    def types(self) -> dict[str, str]:
        return {c.name: c.spark for c in self.columns}

    def relation(self, asked: Collection[str]) -> exp.Expr:
        """The table under the names that the query has for its columns, which are in lower case. What it does
        not ask for is left out, so that the view does not depend on it."""
        columns = [c for c in self.columns if c.name.lower() in asked] or list(self.columns)
        if all(c.name == c.name.lower() and not _is_a_text(c) for c in columns):
            return table_of(self.name)
        values = [
            exp.alias_(
                exp.cast(_column(c.name), "double") if _is_a_text(c) else _column(c.name), c.name.lower()
            )
            for c in columns
        ]
        return exp.select(*_quoted(values)).from_(table_of(self.name)).subquery()


def translated(engine: Engine, sql: str, inputs: Mapping[str, ReadTable], *, for_view: bool) -> str:
    """`inputs` are by the names that the query has for them. Columns of a view must have names, and those
    that say where a row came from are left out of it. Raises ValueError."""
    try:
        return _translated(engine, sql, inputs, for_view)
    except Refused as refused:
        why = str(refused)
    except (SqlglotError, ValueError) as error:
        why = str(error).partition(". Line: ")[0]
    for relation in inputs:  # by which the query calls them, and nobody else
        why = why.replace(f"{relation}.", "")
    raise ValueError(why)


def _translated(engine: Engine, sql: str, inputs: Mapping[str, ReadTable], for_view: bool) -> str:
    written = parse_one(_with_escaped_quotes(sql), dialect=_SPARK)
    if not isinstance(written, exp.Query):
        raise ValueError("it is not a SELECT")
    for hint in list(written.find_all(exp.Hint)):
        hint.pop()  # they are for Spark
    names = _names_as_written(written, refuse_unnamed=for_view)
    schema = MappingSchema({relation: table.types() for relation, table in inputs.items()}, dialect=_SPARK)
    resolved = qualify(written, schema=schema, dialect=_SPARK, quote_identifiers=True, identify=True)
    typed = annotate_types(resolved, schema=schema, dialect=_SPARK)
    assert isinstance(typed, exp.Query)  # noqa: S101  it was one before
    spelling = {c.name.lower(): c.name for table in inputs.values() for c in table.columns} | names
    given = [each.alias_or_name for each in typed.selects]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise ValueError(f"two of its columns are called {twice}")
    shown = [name for name in given if not (for_view and is_provenance(name))]
    columns = {name: spelling.get(name, name) for name in shown}
    _refuse_names(engine, columns.values())
    names_asked = {column.name for column in typed.find_all(exp.Column)}
    relations = {relation: table.relation(names_asked) for relation, table in inputs.items()}
    asked = reading(said_in(engine, typed), relations)
    if list(columns.values()) != given:
        asked = _renamed(asked, columns)
    return asked.sql(dialect=engine.dialect, unsupported_level=ErrorLevel.RAISE, pretty=True)


def _with_escaped_quotes(sql: str) -> str:
    """To sqlglot 'it''s' is two texts side by side, to Spark it is one with a quote."""
    for token, following in pairwise(Spark().tokenize(sql)):
        side_by_side = token.token_type is following.token_type is TokenType.STRING
        if side_by_side and token.end + 1 == following.start:
            sql = f"{sql[: token.end]}\\{sql[following.start]}{sql[following.start + 1 :]}"
    return sql


def _names_as_written(query: exp.Query, *, refuse_unnamed: bool) -> dict[str, str]:
    """By their lower case. What has no name would get one that is the engine's own."""
    names = {}
    for each in query.selects:
        if each.is_star or (not each.alias_or_name and not refuse_unnamed):
            continue
        if not each.alias_or_name:
            raise Refused(each, "has no name: write AS and one")
        names[each.alias_or_name.lower()] = each.alias_or_name
    return names


def _renamed(query: exp.Query, columns: Mapping[str, str]) -> exp.Query:
    values = [exp.alias_(exp.column(name, table=_RESULT), shown) for name, shown in columns.items()]
    return exp.select(*_quoted(values)).from_(query.subquery(_RESULT))


def _refuse_names(engine: Engine, names: Collection[str]) -> None:
    if not names:
        raise ValueError("it has no columns but those that say where a row came from")
    for name in names:
        if len(name.encode()) > engine.longest_name:
            raise ValueError(f"column {name}: the name is longer than {engine.longest_name} bytes")


def _quoted(values: Sequence[exp.Expr]) -> list[exp.Expr]:
    for value in values:
        for name in value.find_all(exp.Identifier):
            name.set("quoted", True)
    return list(values)


def _is_a_text(column: NativeColumn) -> bool:
    return column.native.startswith(_NUMBERS_KEPT_AS_TEXTS)


def _column(name: str) -> exp.Expr:
    return exp.column(name, quoted=True)
