"""Translates a query in Spark SQL to a SELECT that gives the same rows in a database: for views and gates.

1. Resolve every name against the columns of the inputs, and expand every `*`.
2. Infer the type of every expression. Refuse what engines interpret differently, or rewrite it.
3. Replace relations by the tables that they stand for.
4. Name the columns as Spark would, and leave out the provenance columns of the inputs.

The list of allowed expressions is closed, and operands must have types that every engine treats alike.
sqlglot translates more, but not always to the same result: PostgreSQL rounds where Spark truncates, SQLite's
LIKE ignores case, and SQLite reads a text that is not a number as 0. Such a query would silently be wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from itertools import pairwise

from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import TokenType

from tallymark.destinations.warehouse.engine import Engine, NativeColumn, TableName
from tallymark.destinations.warehouse.load_context import table_expression, with_relations
from tallymark.model.table import is_provenance

_SPARK = "spark"
_DECIMAL_AS_TEXT = "DECIMAL_TEXT"
_RESULT = "tm_result"


@dataclass(frozen=True)
class ReadTable:
    name: TableName
    columns: tuple[NativeColumn, ...]

    def types(self) -> dict[str, str]:
        return {c.name: c.spark for c in self.columns}

    def relation(self, asked: Collection[str]) -> exp.Expr:
        """The table with its column names in lower case, as the query has them. Columns that the query
        does not use are left out, so that the view does not depend on them."""
        columns = [c for c in self.columns if c.name.lower() in asked] or list(self.columns)
        if all(c.name == c.name.lower() and not _is_decimal_text(c) for c in columns):
            return table_expression(self.name)
        values = [exp.alias_(_as_number(c), c.name.lower()) for c in columns]
        return exp.select(*_quoted(values)).from_(table_expression(self.name)).subquery()


def translated(engine: Engine, sql: str, inputs: Mapping[str, ReadTable], *, for_view: bool) -> str:
    """`inputs` has the tables by the names that the query uses. A view must name its columns, and leaves out
    provenance columns. Raises ValueError."""
    try:
        return _translated(engine, sql, inputs, for_view)
    except NotTranslatable as refused:
        why = str(refused)
    except (SqlglotError, ValueError) as error:
        why = str(error).partition(". Line: ")[0]
    for relation in inputs:  # internal names: people would not recognize them
        why = why.replace(f"{relation}.", "")
    raise ValueError(why)


def _translated(engine: Engine, sql: str, inputs: Mapping[str, ReadTable], for_view: bool) -> str:
    written = parse_one(_with_escaped_quotes(sql), dialect=_SPARK)
    if not isinstance(written, exp.Query):
        raise ValueError("it is not a SELECT")
    for hint in list(written.find_all(exp.Hint)):
        hint.pop()  # meant for Spark
    names = _names_as_written(written, refuse_unnamed=for_view)
    schema = MappingSchema({relation: table.types() for relation, table in inputs.items()}, dialect=_SPARK)
    resolved = qualify(written, schema=schema, dialect=_SPARK, quote_identifiers=True, identify=True)
    typed = annotate_types(resolved, schema=schema, dialect=_SPARK)
    assert isinstance(typed, exp.Query)  # noqa: S101  as before
    spelling = {c.name.lower(): c.name for table in inputs.values() for c in table.columns} | names
    given = [each.alias_or_name for each in typed.selects]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise ValueError(f"two columns are named {twice}")
    shown = [name for name in given if not (for_view and is_provenance(name))]
    columns = {name: spelling.get(name, name) for name in shown}
    _refuse_names(engine, columns.values())
    names_asked = {column.name for column in typed.find_all(exp.Column)}
    relations = {relation: table.relation(names_asked) for relation, table in inputs.items()}
    selected = with_relations(for_engine(engine, typed), relations)
    if list(columns.values()) != given:
        selected = _renamed(selected, columns)
    return selected.sql(dialect=engine.dialect.sqlglot, unsupported_level=ErrorLevel.RAISE, pretty=True)


def _with_escaped_quotes(sql: str) -> str:
    """sqlglot parses 'it''s' in Spark SQL as two adjacent texts; Spark reads one text with a quote."""
    for token, following in pairwise(Spark().tokenize(sql)):
        side_by_side = token.token_type is following.token_type is TokenType.STRING
        if side_by_side and token.end + 1 == following.start:
            sql = f"{sql[: token.end]}\\{sql[following.start]}{sql[following.start + 1 :]}"
    return sql


def _names_as_written(query: exp.Query, *, refuse_unnamed: bool) -> dict[str, str]:
    """The spelling of each name, by its lower case. Engines make up different names for unnamed columns."""
    names = {}
    for each in query.selects:
        if each.is_star or (not each.alias_or_name and not refuse_unnamed):
            continue
        if not each.alias_or_name:
            raise NotTranslatable(each, "has no name: add AS and a name")
        names[each.alias_or_name.lower()] = each.alias_or_name
    return names


def _renamed(query: exp.Query, columns: Mapping[str, str]) -> exp.Query:
    values = [exp.alias_(exp.column(name, table=_RESULT), shown) for name, shown in columns.items()]
    return exp.select(*_quoted(values)).from_(query.subquery(_RESULT))


def _refuse_names(engine: Engine, names: Collection[str]) -> None:
    if not names:
        raise ValueError("it has no columns other than provenance columns")
    for name in names:
        if len(name.encode()) > engine.longest_name:
            raise ValueError(f"column {name}: the name is longer than {engine.longest_name} bytes")


def _quoted(values: Sequence[exp.Expr]) -> list[exp.Expr]:
    for value in values:
        for name in value.find_all(exp.Identifier):
            name.set("quoted", True)
    return list(values)


def _is_decimal_text(column: NativeColumn) -> bool:
    return column.native.startswith(_DECIMAL_AS_TEXT)


def _as_number(column: NativeColumn) -> exp.Expr:
    """A decimal that is stored as a text is converted."""
    value = exp.column(column.name, quoted=True)
    return exp.cast(value, "double") if _is_decimal_text(column) else value


_CLAUSES = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered),
    *(exp.Limit, exp.Offset, exp.Distinct, exp.Union, exp.Except, exp.Intersect, exp.Subquery, exp.CTE),
    *(exp.With, exp.Table, exp.TableAlias, exp.Alias, exp.Identifier, exp.Column, exp.Star, exp.Paren),
    *(exp.Literal, exp.Boolean, exp.Null, exp.DataType, exp.DataTypeParam, exp.Var, exp.Window),
    *(exp.WindowSpec, exp.Filter),
)
_CONDITIONS = (exp.Exists, exp.Is, exp.Not, exp.And, exp.Or, exp.If, exp.Case, exp.Like)
_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Between, exp.In),
)
_SAME_KIND = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
_OF_NUMBERS = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Sum, exp.Avg, exp.Abs, exp.Round, exp.Floor, exp.Ceil),
)
_OF_TEXTS = (exp.Concat, exp.DPipe, exp.Length, exp.Trim, exp.Upper, exp.Lower, exp.Substring)
_PARTS_OF_DATES: dict[type[exp.Expr], str] = {exp.Year: "%Y", exp.Month: "%m", exp.Day: "%d"}
_OF_TIMES: tuple[type[exp.Expr], ...] = (exp.TsOrDsToDate, exp.TimestampTrunc, exp.DateDiff, *_PARTS_OF_DATES)
_OTHERS = (
    *(exp.Cast, exp.TryCast, exp.Mod, exp.Count, exp.Min, exp.Max, exp.CurrentDate, exp.CurrentTimestamp),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead),
)
ALLOWED: frozenset[type[exp.Expr]] = frozenset(
    (*_CLAUSES, *_CONDITIONS, *_COMPARISONS, *_SAME_KIND, *_OF_NUMBERS, *_OF_TEXTS, *_OF_TIMES, *_OTHERS)
)


class NotTranslatable(Exception):
    """The expression and the reason. The caller adds the file."""

    def __init__(self, node: exp.Expr, why: str):
        shown = node.sql(dialect=_SPARK).replace("`", "")
        super().__init__(f"{shown if len(shown) <= 80 else shown[:80] + '…'}: {why}")


class ValueKind(StrEnum):
    INTEGER = "a whole number"
    NUMBER = "a number"
    TEXT = "a text"
    BOOLEAN = "a boolean"
    DATE = "a date"
    TIMESTAMP = "a timestamp"
    TIMESTAMP_NTZ = "a timestamp without time zone"
    NULL = "NULL"
    OTHER = "a value of another type"
    UNKNOWN = "a value of unknown type"


_NUMBERS = {ValueKind.INTEGER, ValueKind.NUMBER}
_TIMES = {ValueKind.DATE, ValueKind.TIMESTAMP, ValueKind.TIMESTAMP_NTZ}
_INTEGER_OR_UNKNOWN = {ValueKind.INTEGER, ValueKind.NULL, ValueKind.UNKNOWN}
_NUMBER_OR_UNKNOWN = _NUMBERS | {ValueKind.NULL, ValueKind.UNKNOWN}


def value_kind(node: exp.Expr) -> ValueKind:
    of = node.type
    if of is None or of.this is exp.DType.UNKNOWN:
        return ValueKind.UNKNOWN
    if of.this in exp.DataType.INTEGER_TYPES:
        return ValueKind.INTEGER
    if of.this in exp.DataType.NUMERIC_TYPES:
        return ValueKind.NUMBER
    if of.this in exp.DataType.TEXT_TYPES:
        return ValueKind.TEXT
    return _KINDS.get(of.this, ValueKind.OTHER)


_KINDS = {
    exp.DType.NULL: ValueKind.NULL,
    exp.DType.BOOLEAN: ValueKind.BOOLEAN,
    exp.DType.DATE: ValueKind.DATE,
    exp.DType.TIMESTAMPTZ: ValueKind.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: ValueKind.TIMESTAMP,
    exp.DType.TIMESTAMP: ValueKind.TIMESTAMP_NTZ,
    exp.DType.TIMESTAMPNTZ: ValueKind.TIMESTAMP_NTZ,
}


def for_engine(engine: Engine, query: exp.Query) -> exp.Query:
    """Rewrites a query with inferred types for the engine. Raises NotTranslatable."""
    for moment in list(query.find_all(exp.CurrentTimestamp, exp.TimestampTrunc)):
        moment.type = exp.DataType.build("timestamptz")  # sqlglot infers another type
    for node in query.walk():
        if type(node) not in ALLOWED:
            raise NotTranslatable(node, "does not mean the same in Spark and every database")
        if type(node) in engine.dialect.lacks:
            raise NotTranslatable(node, engine.dialect.lacks[type(node)])
        _refuse_forms(node)
        _refuse_kinds(node)
    # Innermost nodes first: an outer node then takes what its operand was replaced by.
    for node in reversed(list(query.walk(bfs=True))):
        rewritten = _rewritten(engine, node)
        if rewritten is not node:
            rewritten.type = node.type
            node.replace(rewritten)
    return query


def _refuse_forms(node: exp.Expr) -> None:
    match node:
        case exp.Group() if node.args.get("all"):
            raise NotTranslatable(node, "name the columns")
        case exp.Count(this=exp.Distinct(expressions=[_, _, *_])):
            raise NotTranslatable(node, "engines count distinct rows that contain NULL differently")
        case exp.Substring(args={"start": exp.Literal(is_string=False, this=start)}) if int(start) < 1:
            raise NotTranslatable(node, "engines interpret positions before the first character differently")
        case exp.Substring(args={"start": start}) if not isinstance(start, exp.Literal):
            raise NotTranslatable(node, "the position must be a literal")
        case exp.Floor() | exp.Ceil() if node.args.get("decimals"):
            raise NotTranslatable(node, "only Spark has a number of decimal places here")
        case exp.TsOrDsToDate() if node.args.get("format"):
            raise NotTranslatable(node, "engines have different date patterns")


def _refuse_kinds(node: exp.Expr) -> None:
    match node:
        case exp.Mod():
            _require(
                node,
                _operands(node),
                _INTEGER_OR_UNKNOWN,
                ValueKind.INTEGER,
            )
        case _ if isinstance(node, _OF_NUMBERS):
            _require(node, _operands(node), _NUMBER_OR_UNKNOWN, ValueKind.NUMBER)
        case _ if isinstance(node, _OF_TEXTS):
            _require(node, _texts(node), {ValueKind.TEXT, ValueKind.NULL}, ValueKind.TEXT)
        case _ if isinstance(node, _OF_TIMES):
            _require(node, _times(node), {*_TIMES, ValueKind.NULL}, ValueKind.DATE)
        case _ if isinstance(node, (*_COMPARISONS, *_SAME_KIND)):
            _require_one_kind(node, list(_operands(node)))
        case exp.Case():
            branches = node.args["ifs"]
            _require_one_kind(node, [*(branch.args["true"] for branch in branches), *_given(node, "default")])
            if node.args.get("this"):
                _require_one_kind(node, [node.this, *(branch.this for branch in branches)])
        case exp.If():
            _require_one_kind(node, [*_given(node, "true"), *_given(node, "false")])
        case exp.SetOperation():
            for left, right in zip(node.left.selects, node.right.selects, strict=False):
                _require_one_kind(node, [left, right])


def _require(
    node: exp.Expr, operands: Iterable[exp.Expr], allowed: set[ValueKind], wanted: ValueKind
) -> None:
    for operand in operands:
        if value_kind(operand) not in allowed:
            raise NotTranslatable(node, f"needs {wanted} and has {value_kind(operand)}")


def _require_one_kind(node: exp.Expr, operands: list[exp.Expr]) -> None:
    """Engines compare values of different types differently. A time may be given as a text."""
    kinds = {value_kind(operand) for operand in operands if not _is_text_literal(operand)} - {ValueKind.NULL}
    if not any(kind in _TIMES for kind in kinds):
        kinds |= {ValueKind.TEXT for operand in operands if _is_text_literal(operand)}
    if ValueKind.OTHER in kinds and isinstance(node, _COMPARISONS):
        raise NotTranslatable(node, "compares values of a type that not every engine can compare")
    if len({ValueKind.NUMBER if kind in _NUMBERS else kind for kind in kinds} - {ValueKind.UNKNOWN}) > 1:
        raise NotTranslatable(node, f"mixes {' and '.join(sorted(kinds))}")
    if ValueKind.UNKNOWN in kinds and kinds & _TIMES:
        raise NotTranslatable(node, f"mixes {' and '.join(sorted(kinds))}")


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    for key, found in node.args.items():
        if key in ("this", "expression", "expressions", "low", "high"):
            for operand in found if isinstance(found, list) else [found]:
                if isinstance(operand, exp.Distinct):
                    yield from operand.expressions
                elif isinstance(operand, exp.Expr):
                    yield operand
        elif key == "query" and found is not None:
            yield from found.find(exp.Query).selects[:1]


def _texts(node: exp.Expr) -> Iterator[exp.Expr]:
    return _operands(node) if isinstance(node, exp.Concat | exp.DPipe) else iter([node.this])


def _times(node: exp.Expr) -> Iterator[exp.Expr]:
    """sqlglot wraps operands of Spark functions in a cast to date, whatever their type."""
    for operand in _operands(node):
        inner = operand.this if isinstance(operand, exp.TsOrDsToDate) else operand
        if not _is_text_literal(inner):
            yield inner


def _given(node: exp.Expr, key: str) -> Iterator[exp.Expr]:
    if found := node.args.get(key):
        yield found


def _is_text_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _rewritten(engine: Engine, node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Cast():
            return _cast(engine, node)
        case exp.Like():
            return _like(engine, node)
        case exp.TsOrDsToDate(this=exp.Literal() as text):
            return _time(engine, node, text.name, ValueKind.DATE)
        case exp.TsOrDsToDate():
            node.set("safe", None)  # a time always has a date
            return node
        case exp.Year() | exp.Month() | exp.Day():
            return _part_of_date(engine, node)
        case exp.Sum() | exp.Avg() | exp.Filter() | exp.Window():
            return _typed_sum(engine, node)
        case _ if isinstance(node, _COMPARISONS):
            return _with_times(engine, node)
        case _:
            return node


def _cast(engine: Engine, node: exp.Cast) -> exp.Expr:
    value, to = node.this, value_kind(node)
    given = value_kind(value)
    if node.args.get("safe"):
        raise NotTranslatable(node, "not every engine has it")
    if given is ValueKind.NULL:
        return value if not engine.dialect.has_types else exp.cast(value, node.to)
    if given is to and to is not ValueKind.NUMBER:
        return exp.cast(value, node.to)
    if to in _TIMES and _is_text_literal(value):
        return _time(engine, node, value.name, to)
    if to is ValueKind.DATE and given in _TIMES:
        return exp.TsOrDsToDate(this=value)
    if to is ValueKind.TEXT and given in (ValueKind.INTEGER, ValueKind.DATE):
        return exp.cast(value, node.to)
    if to in _NUMBERS and (given in _NUMBERS or _is_number(value)):
        return _number(engine, value, node.to, to)
    raise NotTranslatable(node, f"engines convert {given} differently")


def _is_number(value: exp.Expr) -> bool:
    if not _is_text_literal(value):
        return False
    try:
        float(value.name)
    except ValueError:
        return False
    return "nan" not in value.name.casefold() and "inf" not in value.name.casefold()


def _number(engine: Engine, value: exp.Expr, to: exp.DataType, kind: ValueKind) -> exp.Expr:
    is_decimal = to.this is exp.DType.DECIMAL
    sizes = [int(size.name) for size in to.expressions] or [10, 0] if is_decimal else []
    if not engine.dialect.has_types and is_decimal:
        scale = exp.Literal.number(sizes[1] if len(sizes) > 1 else 0)
        return exp.Round(this=exp.cast(value, "double"), decimals=scale)
    if kind is ValueKind.INTEGER and value_kind(value) is ValueKind.NUMBER and engine.dialect.has_types:
        value = exp.Anonymous(this="TRUNC", expressions=[value])  # a cast would round
    if is_decimal:
        to = exp.DataType.build(f"decimal({', '.join(map(str, sizes))})")
    return exp.cast(value, to)


def _time(engine: Engine, node: exp.Expr, text: str, kind: ValueKind) -> exp.Expr:
    """In the form in which the engine stores times. Texts of different forms do not compare as times."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise NotTranslatable(node, "is not a valid time such as 2026-01-31 or 2026-01-31 12:00:00") from None
    if kind is ValueKind.TIMESTAMP:
        return engine.moment(at if at.tzinfo else at.replace(tzinfo=UTC))
    if kind is ValueKind.DATE:
        literal, stored_as = exp.Literal.string(date.isoformat(at)), exp.DType.DATE
    else:
        wall_clock = at.replace(tzinfo=None).isoformat(" ", "microseconds")
        literal, stored_as = exp.Literal.string(wall_clock), exp.DType.TIMESTAMP
    return exp.cast(literal, stored_as) if engine.dialect.has_types else literal


def _with_times(engine: Engine, node: exp.Expr) -> exp.Expr:
    times = [value_kind(operand) for operand in _operands(node) if value_kind(operand) in _TIMES]
    if times:
        for operand in [operand for operand in _operands(node) if _is_text_literal(operand)]:
            if not isinstance(operand.parent, exp.Cast) and value_kind(operand) not in _TIMES:
                operand.replace(_time(engine, node, operand.name, times[0]))
    return node


def _like(engine: Engine, node: exp.Like) -> exp.Expr:
    pattern = node.expression
    if not _is_text_literal(pattern) or "\\" in pattern.name:
        raise NotTranslatable(node, "the pattern must be a literal without \\")
    if not engine.dialect.like_ignores_case:
        return node
    glob = "".join(_GLOB.get(letter, letter) for letter in pattern.name)
    found = exp.Glob(this=node.this, expression=exp.Literal.string(glob))
    return exp.not_(found) if node.args.get("negate") else found


_GLOB = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}


def _part_of_date(engine: Engine, node: exp.Expr) -> exp.Expr:
    if engine.dialect.has_types:
        return exp.cast(node.copy(), "int")
    pattern = exp.Literal.string(_PARTS_OF_DATES[type(node)])
    return exp.cast(exp.Anonymous(this="STRFTIME", expressions=[pattern, node.this]), "int")


def _typed_sum(engine: Engine, node: exp.Expr) -> exp.Expr:
    """As in Spark, sums of integers are integers, and averages of integers are doubles."""
    if isinstance(node.parent, exp.Filter | exp.Window) and node.arg_key == "this":
        return node  # the cast is put around these
    inner = node
    while isinstance(inner, exp.Filter | exp.Window):
        inner = inner.this
    if not engine.dialect.has_types or not isinstance(inner, exp.Sum | exp.Avg):
        return node
    if any(value_kind(operand) is not ValueKind.INTEGER for operand in _operands(inner)):
        return node
    return exp.cast(node.copy(), "bigint" if isinstance(inner, exp.Sum) else "double")
