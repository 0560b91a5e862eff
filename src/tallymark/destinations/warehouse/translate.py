"""From a query in Spark SQL to the SELECT of a database that gives the same rows, for views and tests.

1. every name is resolved against the columns of the inputs, and every `*` is written out
2. every expression gets its type; what engines understand differently is refused or said otherwise
   (`translation_words`)
3. relations become the tables that they stand for
4. the columns get the names that Spark would give them; provenance of the inputs is left out
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

from tallymark.destinations.warehouse.engine import Engine, Name, NativeColumn
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


SQLITE = "sqlite"  # its times are texts, and it knows fewer words

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
_NOT_IN_SQLITE: dict[type[exp.Expr], str] = {
    exp.Upper: "SQLite knows no letters but A to Z",
    exp.Lower: "SQLite knows no letters but A to Z",
    exp.TimestampTrunc: "SQLite cannot cut off times",
    exp.CurrentTimestamp: "SQLite's own is not written like the times in its tables",
    exp.Greatest: "SQLite has it without Spark's rule for NULL",
    exp.Least: "SQLite has it without Spark's rule for NULL",
}


class Refused(Exception):
    """What cannot be said, and why. Whoever translates adds the file."""

    def __init__(self, node: exp.Expr, why: str):
        said = node.sql(dialect="spark").replace("`", "")
        super().__init__(f"{said if len(said) <= 80 else said[:80] + '…'}: {why}")


class Kind(StrEnum):
    INTEGER = "a whole number"
    NUMBER = "a number"
    TEXT = "a text"
    BOOLEAN = "a truth value"
    DATE = "a date"
    TIMESTAMP = "a timestamp"
    TIMESTAMP_NTZ = "a timestamp without zone"
    NULL = "NULL"
    OTHER = "a value of another type"
    UNKNOWN = "a value of a type that is not known"


_NUMBERS = {Kind.INTEGER, Kind.NUMBER}
_TIMES = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}
_ANY_NUMBER_OR_LESS = _NUMBERS | {Kind.NULL, Kind.UNKNOWN}


def kind_of(node: exp.Expr) -> Kind:
    of = node.type
    if of is None or of.this is exp.DType.UNKNOWN:
        return Kind.UNKNOWN
    if of.this in exp.DataType.INTEGER_TYPES:
        return Kind.INTEGER
    if of.this in exp.DataType.NUMERIC_TYPES:
        return Kind.NUMBER
    if of.this in exp.DataType.TEXT_TYPES:
        return Kind.TEXT
    return _KINDS.get(of.this, Kind.OTHER)


_KINDS = {
    exp.DType.NULL: Kind.NULL,
    exp.DType.BOOLEAN: Kind.BOOLEAN,
    exp.DType.DATE: Kind.DATE,
    exp.DType.TIMESTAMPTZ: Kind.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: Kind.TIMESTAMP,
    exp.DType.TIMESTAMP: Kind.TIMESTAMP_NTZ,
    exp.DType.TIMESTAMPNTZ: Kind.TIMESTAMP_NTZ,
}


def said_in(engine: Engine, query: exp.Query) -> exp.Query:
    """The query, whose nodes know their types, as the engine has to be asked. Raises Refused."""
    for moment in list(query.find_all(exp.CurrentTimestamp, exp.TimestampTrunc)):
        moment.type = exp.DataType.build("timestamptz")  # which sqlglot does not know of Spark
    for node in query.walk():
        if type(node) not in ALLOWED:
            raise Refused(node, "is not among the words that Spark and every database mean alike")
        if engine.dialect == SQLITE and type(node) in _NOT_IN_SQLITE:
            raise Refused(node, _NOT_IN_SQLITE[type(node)])
        _refuse_forms(node)
        _refuse_kinds(node)
    for node in reversed(list(query.walk(bfs=True))):  # the innermost first: what it becomes is moved along
        meant = _meant(engine, node)
        if meant is not node:
            meant.type = node.type
            node.replace(meant)
    return query


def _refuse_forms(node: exp.Expr) -> None:
    match node:
        case exp.Group() if node.args.get("all"):
            raise Refused(node, "name the columns")
        case exp.Count(this=exp.Distinct(expressions=[_, _, *_])):
            raise Refused(node, "engines count distinct rows with NULL differently")
        case exp.Substring(args={"start": exp.Literal(is_string=False, this=start)}) if int(start) < 1:
            raise Refused(node, "engines count from the end differently")
        case exp.Substring(args={"start": start}) if not isinstance(start, exp.Literal):
            raise Refused(node, "the position must be written out")
        case exp.Floor() | exp.Ceil() if node.args.get("decimals"):
            raise Refused(node, "to digits after the point is Spark's alone")
        case exp.TsOrDsToDate() if node.args.get("format"):
            raise Refused(node, "engines have other patterns for dates")


def _refuse_kinds(node: exp.Expr) -> None:
    match node:
        case exp.Mod():
            _need(node, _operands(node), {Kind.INTEGER, Kind.NULL, Kind.UNKNOWN}, Kind.INTEGER)
        case _ if isinstance(node, _OF_NUMBERS):
            _need(node, _operands(node), _ANY_NUMBER_OR_LESS, Kind.NUMBER)
        case _ if isinstance(node, _OF_TEXTS):
            _need(node, _texts(node), {Kind.TEXT, Kind.NULL}, Kind.TEXT)
        case _ if isinstance(node, _OF_TIMES):
            _need(node, _times(node), {*_TIMES, Kind.NULL}, Kind.DATE)
        case _ if isinstance(node, (*_COMPARISONS, *_SAME_KIND)):
            _need_the_same(node, list(_operands(node)))
        case exp.Case():
            branches = node.args["ifs"]
            _need_the_same(node, [*(branch.args["true"] for branch in branches), *_given(node, "default")])
            if node.args.get("this"):
                _need_the_same(node, [node.this, *(branch.this for branch in branches)])
        case exp.If():
            _need_the_same(node, [*_given(node, "true"), *_given(node, "false")])
        case exp.SetOperation():
            for left, right in zip(node.left.selects, node.right.selects, strict=False):
                _need_the_same(node, [left, right])


def _need(node: exp.Expr, operands: Iterable[exp.Expr], allowed: set[Kind], wanted: Kind) -> None:
    for operand in operands:
        if kind_of(operand) not in allowed:
            raise Refused(node, f"needs {wanted}, and has {kind_of(operand)}")


def _need_the_same(node: exp.Expr, operands: list[exp.Expr]) -> None:
    """Engines differ in what they make of a comparison of two types. A time may be written as a text."""
    kinds = {kind_of(operand) for operand in operands if not _is_text_literal(operand)} - {Kind.NULL}
    if not any(kind in _TIMES for kind in kinds):
        kinds |= {Kind.TEXT for operand in operands if _is_text_literal(operand)}
    if Kind.OTHER in kinds and isinstance(node, _COMPARISONS):
        raise Refused(node, "compares values that not every engine can compare")
    if len({Kind.NUMBER if kind in _NUMBERS else kind for kind in kinds} - {Kind.UNKNOWN}) > 1:
        raise Refused(node, f"mixes {' and '.join(sorted(kinds))}")
    if Kind.UNKNOWN in kinds and kinds & _TIMES:
        raise Refused(node, f"mixes {' and '.join(sorted(kinds))}")


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
    """Spark has `date` around an operand that may be anything."""
    for operand in _operands(node):
        inner = operand.this if isinstance(operand, exp.TsOrDsToDate) else operand
        if not _is_text_literal(inner):
            yield inner


def _given(node: exp.Expr, key: str) -> Iterator[exp.Expr]:
    if found := node.args.get(key):
        yield found


def _is_text_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _meant(engine: Engine, node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Cast():
            return _cast(engine, node)
        case exp.Like():
            return _like(engine, node)
        case exp.TsOrDsToDate(this=exp.Literal() as text):
            return _time(engine, node, text.name, Kind.DATE)
        case exp.TsOrDsToDate():
            node.set("safe", None)  # of a time it cannot fail
            return node
        case exp.Year() | exp.Month() | exp.Day():
            return _part_of_date(engine, node)
        case exp.Sum() | exp.Avg() | exp.Filter() | exp.Window():
            return _whole_sum(engine, node)
        case _ if isinstance(node, _COMPARISONS):
            return _with_times(engine, node)
        case _:
            return node


def _cast(engine: Engine, node: exp.Cast) -> exp.Expr:
    value, to = node.this, kind_of(node)
    given = kind_of(value)
    if node.args.get("safe"):
        raise Refused(node, "not every engine has it")
    if given is Kind.NULL:
        return value if engine.dialect == SQLITE else exp.cast(value, node.to)
    if given is to and to is not Kind.NUMBER:
        return exp.cast(value, node.to)
    if to in _TIMES and _is_text_literal(value):
        return _time(engine, node, value.name, to)
    if to is Kind.DATE and given in _TIMES:
        return exp.TsOrDsToDate(this=value)
    if to is Kind.TEXT and given in (Kind.INTEGER, Kind.DATE):
        return exp.cast(value, node.to)
    if to in _NUMBERS and (given in _NUMBERS or _is_number(value)):
        return _number(engine, value, node.to, to)
    raise Refused(node, f"engines differ in what they make of {given} there")


def _is_number(value: exp.Expr) -> bool:
    if not _is_text_literal(value):
        return False
    try:
        float(value.name)
    except ValueError:
        return False
    return "nan" not in value.name.casefold() and "inf" not in value.name.casefold()


def _number(engine: Engine, value: exp.Expr, to: exp.DataType, kind: Kind) -> exp.Expr:
    is_decimal = to.this is exp.DType.DECIMAL
    sizes = [int(size.name) for size in to.expressions] or [10, 0] if is_decimal else []
    if engine.dialect == SQLITE and is_decimal:
        scale = exp.Literal.number(sizes[1] if len(sizes) > 1 else 0)
        return exp.Round(this=exp.cast(value, "double"), decimals=scale)
    if kind is Kind.INTEGER and kind_of(value) is Kind.NUMBER and engine.dialect != SQLITE:
        value = exp.Anonymous(this="TRUNC", expressions=[value])  # their casts would round
    if is_decimal:
        to = exp.DataType.build(f"decimal({', '.join(map(str, sizes))})")
    return exp.cast(value, to)


def _time(engine: Engine, node: exp.Expr, text: str, kind: Kind) -> exp.Expr:
    """As the engine keeps times: in SQLite they are texts, which compare only when written alike."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Refused(node, "is not a time like 2026-01-31 or 2026-01-31 12:00:00") from None
    if kind is Kind.TIMESTAMP:
        return engine.moment(at if at.tzinfo else at.replace(tzinfo=UTC))
    if kind is Kind.DATE:
        literal, native = exp.Literal.string(date.isoformat(at)), "date"
    else:
        wall_clock = at.replace(tzinfo=None).isoformat(" ", "microseconds")
        literal, native = exp.Literal.string(wall_clock), "timestamp"
    return literal if engine.dialect == SQLITE else exp.cast(literal, native, dialect="postgres")


def _with_times(engine: Engine, node: exp.Expr) -> exp.Expr:
    times = [kind_of(operand) for operand in _operands(node) if kind_of(operand) in _TIMES]
    if times:
        for operand in [operand for operand in _operands(node) if _is_text_literal(operand)]:
            if not isinstance(operand.parent, exp.Cast) and kind_of(operand) not in _TIMES:
                operand.replace(_time(engine, node, operand.name, times[0]))
    return node


def _like(engine: Engine, node: exp.Like) -> exp.Expr:
    pattern = node.expression
    if not _is_text_literal(pattern) or "\\" in pattern.name:
        raise Refused(node, "the pattern must be written out, without \\")
    if engine.dialect != SQLITE:
        return node
    glob = "".join(_GLOB.get(letter, letter) for letter in pattern.name)
    found = exp.Glob(this=node.this, expression=exp.Literal.string(glob))
    return exp.not_(found) if node.args.get("negate") else found


_GLOB = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}


def _part_of_date(engine: Engine, node: exp.Expr) -> exp.Expr:
    if engine.dialect != SQLITE:
        return exp.cast(node.copy(), "int")
    pattern = exp.Literal.string(_PARTS_OF_DATES[type(node)])
    return exp.cast(exp.Anonymous(this="STRFTIME", expressions=[pattern, node.this]), "int")


def _whole_sum(engine: Engine, node: exp.Expr) -> exp.Expr:
    """Sums of whole numbers are whole, and their averages are doubles, as Spark has them."""
    if isinstance(node.parent, exp.Filter | exp.Window) and node.arg_key == "this":
        return node  # the cast goes around these
    inner = node
    while isinstance(inner, exp.Filter | exp.Window):
        inner = inner.this
    if engine.dialect == SQLITE or not isinstance(inner, exp.Sum | exp.Avg):
        return node
    if any(kind_of(operand) is not Kind.INTEGER for operand in _operands(inner)):
        return node
    return exp.cast(node.copy(), "bigint" if isinstance(inner, exp.Sum) else "double")
