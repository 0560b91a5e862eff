"""Source rows become rows of the table: renamed, typed without loss, each with the list of its problems.

1. match   every source column gets its rule, target name and target type; what is impossible is an error
           here, before any row is read
2. cast    one projection; a value that does not fit is a problem of its row, never a silent NULL
3. judge   malformed records, casts, required values and keys, in one array per row

What a row of a change feed must hold depends on its event:

| event | key | operation, sequence | other required values |
|---|---|---|---|
| insert, update | needed | needed | needed |
| delete | needed | needed | – |
| truncate | – | needed | – |
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from tallymark.checks.casts import JSON_OPTIONS, Cast, NoCast, Sql, data_type, is_temporal, lossless
from tallymark.config.pipeline_file import ColumnConfig
from tallymark.errors import CheckError, ConfigError, TypeConflict
from tallymark.model.plan import TECHNICAL_COLUMNS
from tallymark.model.settings import MergeSettings, Operation, Strategy
from tallymark.model.table import SOURCE_FILE, SOURCE_FILE_HASH, Column, TableShape, is_provenance
from tallymark.model.types import literal, literals, named, options, quoted

CORRUPT = "_tm_corrupt"  # raw text of a record that its reader could not parse
POSITION = "_tm_position"  # of a replayed row in the file from which it first came
RECORD_ORDER = "_tm_record"  # ROW_ORDER of the record behind an envelope's row; one record may give two rows
NO_CHANGE = "_tm_no_change"  # true for a record of a feed that changes no row: it only counts for positions
PROBLEMS = "_tm_problems"  # empty for a good row
RAW = "_tm_raw"  # of a bad row: the record as JSON, or the text of a malformed record
PROBLEMS_TYPE = "array<struct<column:string,reason:string,value:string>>"
IS_BAD = f"size({PROBLEMS}) > 0"
VALUE_LENGTH = 1000  # of the value in a problem; RAW has it in full
_PROVENANCE = (SOURCE_FILE_HASH, SOURCE_FILE)
_TECHNICAL_PREFIX = "_tm_"
_NAMES_SHOWN, _NAME_SHOWN = 30, 60
_REPLACEMENT = "\ufffd"  # stands for bytes that a reader could not decode
_NO_TEXT = "CAST(NULL AS string)"


@dataclass(frozen=True)
class Conformed:
    """`frame` has the user's `columns`, provenance, the technical columns, PROBLEMS and RAW.
    `source` is the type of the record that RAW holds, for a replay."""

    frame: DataFrame
    columns: tuple[Column, ...]
    source: t.StructType


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


@dataclass(frozen=True)
class _Target:
    column: Column
    source: str | None  # None: the source lacks it
    cast: Cast | None
    rule: ColumnConfig | None


@dataclass(frozen=True)
class _Needs:
    """The columns that must hold a value, in lower case."""

    keys: Collection[str]
    values: Collection[str]
    feed: FeedRules | None


def conform(
    frame: DataFrame,
    source_columns: Sequence[Column],
    rules: Sequence[ColumnConfig],
    table: TableShape | None,
    *,
    required: Collection[str],
    unique_key: Collection[str],
    feed: FeedRules | None = None,
) -> Conformed:
    """`required` columns, like those with a `required` rule, must exist and hold a value in every row; with a
    `feed`, in every row whose event needs it."""
    rules = _with_operation_as_text(rules, feed) if feed else rules
    _check_patterns(frame, rules)
    types = {field.name: field.dataType for field in frame.schema.fields}
    source = t.StructType([t.StructField(c.name, _not_void(types[c.name])) for c in source_columns])
    changes = feed.columns if feed else ()
    targets = _match(source, rules, table, changes)
    keys = {name.casefold() for name in unique_key}
    needed = {name.casefold() for name in required} | {r.name.casefold() for r in rules if r.required}
    _check_present(
        targets, [*unique_key, *changes, *required, *(r.name for r in rules if r.required)], source
    )
    needed -= keys | {name.casefold() for name in changes}
    return Conformed(
        frame=_judged(frame, source, targets, _Needs(keys, needed, feed)),
        columns=tuple(target.column for target in targets),
        source=source,
    )


# 1. match


def _declared_type(column: str, text: str) -> t.DataType:
    try:
        return data_type(text)
    except ValueError as problem:
        raise ConfigError(
            f"columns: {column}: {text} cannot be declared: {problem}",
            hint="see docs/reference/types.md for the types of columns",
            facts={"column": column, "type": text},
        ) from None


def _check_patterns(frame: DataFrame, rules: Sequence[ColumnConfig]) -> None:
    """Before any row is read: Spark itself finds a wrong pattern at the first row, in the middle of a job."""
    for rule in rules:
        if rule.format is None:
            continue
        if rule.type is None or not is_temporal(_declared_type(rule.name, rule.type)):
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


def _with_operation_as_text(rules: Sequence[ColumnConfig], feed: FeedRules) -> list[ColumnConfig]:
    """Operation codes are compared as text, even if they are numbers."""
    wanted = feed.operation_column
    text = {"type": "string", "format": None}
    changed = [r.model_copy(update=text) if r.name.casefold() == wanted.casefold() else r for r in rules]
    known = any(rule.name.casefold() == wanted.casefold() for rule in rules)
    return changed if known else [*changed, ColumnConfig(name=wanted, type="string")]


def _match(
    source: t.StructType, rules: Sequence[ColumnConfig], table: TableShape | None, changes: Sequence[str]
) -> list[_Target]:
    by_source: dict[str, list[ColumnConfig]] = {}
    for rule in rules:
        by_source.setdefault((rule.source or rule.name).casefold(), []).append(rule)
    targets: list[_Target] = []
    for field in source.fields:
        matching = by_source.pop(field.name.casefold(), None)
        targets += [_target(field, rule, table) for rule in matching or (None,)]
    for missing in (rule for left in by_source.values() for rule in left):
        targets.append(_absent(missing, table))
    if not source.fields and table:  # an empty file has no rows, and the table's columns
        named = [*table.columns, *(Column(c, "string") for c in changes if table.column(c) is None)]
        held = {target.column.name.casefold() for target in targets}
        rest = [c for c in named if c.name.casefold() not in held and not is_provenance(c.name)]
        targets += [_Target(column, None, None, None) for column in rest]
    _check_names(targets)
    return targets


def _target(field: t.StructField, rule: ColumnConfig | None, table: TableShape | None) -> _Target:
    name = rule.name if rule else field.name
    existing = table.column(name) if table else None
    wanted = _wanted_type(rule, existing, field.dataType)
    pattern = rule.format if rule and isinstance(field.dataType, t.StringType) else None
    try:
        cast = lossless(field.dataType, wanted, pattern)
    except NoCast as no:
        raise _conflict(field, wanted, no, declared=bool(rule and rule.type)) from None
    column = Column(existing.name if existing else name, wanted.simpleString())
    return _Target(column, field.name, cast, rule)


def _absent(rule: ColumnConfig, table: TableShape | None) -> _Target:
    existing = table.column(rule.name) if table else None
    wanted = _wanted_type(rule, existing, t.NullType())
    return _Target(Column(existing.name if existing else rule.name, wanted.simpleString()), None, None, rule)


def _wanted_type(rule: ColumnConfig | None, existing: Column | None, source: t.DataType) -> t.DataType:
    if rule and rule.type:
        return _declared_type(rule.name, rule.type)
    if existing and existing.type.casefold() != source.simpleString().casefold():
        try:
            return data_type(existing.type)
        except ValueError as problem:
            raise TypeConflict(
                f"column {existing.name} is {source.simpleString()} in the source and {existing.type} in the "
                f"table: {problem}",
                hint="write this column by a transform, or leave it out",
            ) from None
    return _not_void(source)


def _not_void(found: t.DataType) -> t.DataType:
    """A column with nothing but NULL has no type, and no table has a column without one: it becomes
    string."""
    return t.StringType() if isinstance(found, t.NullType) else found


def _conflict(field: t.StructField, wanted: t.DataType, no: NoCast, *, declared: bool) -> TypeConflict:
    given, target = field.dataType.simpleString(), wanted.simpleString()
    where = f" (at {no.path})" if no.path else ""
    whose = "its rule" if declared else "the table"
    return TypeConflict(
        f"column {field.name} is {given} in the source and {target} in {whose}, and there is no lossless cast"
        f"{where}",
        hint=f"change the type under `columns`, or load {field.name} into a column of another name",
        facts={"column": field.name, "source_type": given, "target_type": target},
    )


def _check_names(targets: Sequence[_Target]) -> None:
    seen: dict[str, _Target] = {}
    for target in targets:
        name = target.column.name
        if first := seen.get(name.casefold()):
            raise ConfigError(
                f"columns {first.source or first.column.name} and {target.source or name} "
                f"would both become {name}",
                hint="rename one of them by a rule under `columns`: {from: …, name: …}",
            )
        seen[name.casefold()] = target
        if problem := _name_problem(name):
            raise CheckError(
                f"column {name!r}: {problem}",
                hint=f"rename it by a rule under `columns`: {{from: {target.source or name!r}, name: …}}",
                facts={"column": name},
            )


def _name_problem(name: str) -> str:
    if not name:
        return "it has no name"
    if name.casefold().startswith(_TECHNICAL_PREFIX):
        return f"names that begin with {_TECHNICAL_PREFIX} are reserved"
    if is_provenance(name):
        return "Tallymark writes a provenance column of this name"
    return ""


def _check_present(targets: Sequence[_Target], needed: Sequence[str], source: t.StructType) -> None:
    empty = not source.fields
    held = {target.column.name.casefold() for target in targets if empty or target.source is not None}
    for name in needed:
        if name.casefold() in held:
            continue
        rule = next((x.rule for x in targets if x.column.name.casefold() == name.casefold()), None)
        source_name = rule.source or rule.name if rule else name
        spelling = {field.casefold(): field for field in source.names}
        known = [field[:_NAME_SHOWN] for field in source.names[:_NAMES_SHOWN]]  # a binary file has long names
        close = [spelling[n] for n in difflib.get_close_matches(source_name.casefold(), spelling, n=3)]
        has = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(known) or 'none'}."
        if len(known) == 1 and (separator := next((c for c in ";\t|" if c in known[0]), None)):
            has += f" Is it separated by {separator!r}? Then set source.options: {{sep: {separator!r}}}."
        raise CheckError(
            f"column {name} is required, but the source has no column {source_name}",
            hint=f"{has} Rename it by a rule under `columns`: "
            f"{{from: {close[0] if close else '…'}, name: {name}}}",
            facts={"column": name, "source_columns": known},
        )


# 2. cast


def _judged(frame: DataFrame, source: t.StructType, targets: Sequence[_Target], needs: _Needs) -> DataFrame:
    """One projection after another, so that each value is cast once and each reason is computed once; Spark
    runs them in one stage."""
    typed = [f"_tm_typed_{at}" for at in range(len(targets))]
    present = set(frame.columns)
    kept = [name for name in (*TECHNICAL_COLUMNS, POSITION, RECORD_ORDER, NO_CHANGE) if name in present]
    texts = [name if name in present else f"{_NO_TEXT} AS {name}" for name in (*_PROVENANCE, CORRUPT)]
    cast = frame.selectExpr(
        *map(quoted, source.names),
        *kept,
        *texts,
        *[f"{_value(target)} AS {name}" for target, name in zip(targets, typed, strict=True)],
    )
    operation = _operation(targets, typed, needs.feed)
    reasons = {
        f"_tm_reason_{at}": (target, reason)
        for at, (target, name) in enumerate(zip(targets, typed, strict=True))
        if (reason := _reason(target, name, needs, operation)) is not None
    }
    reasoned = cast.selectExpr("*", *[f"{reason} AS {name}" for name, (_, reason) in reasons.items()])
    problems = _problems({name: target for name, (target, _) in reasons.items()})
    record = f"to_json(struct({', '.join(map(quoted, source.names))}), {options(JSON_OPTIONS)})"
    raw = f"CASE WHEN size({PROBLEMS}) > 0 THEN coalesce({CORRUPT}, {record}) END"
    return reasoned.selectExpr("*", f"{problems} AS {PROBLEMS}").selectExpr(
        *[named(name, target.column.name) for target, name in zip(targets, typed, strict=True)],
        *_PROVENANCE,
        *kept,
        PROBLEMS,
        f"{raw} AS {RAW}",
    )


def _value(target: _Target) -> Sql:
    if target.source is None or target.cast is None:
        return f"CAST(NULL AS {target.column.type})"
    return target.cast.value(quoted(target.source))


# 3. judge


def _problems(reasons: Mapping[str, _Target]) -> Sql:
    """The array is built only for bad rows: a good row costs no more than a test of its reasons."""
    undecodable = f"contains({CORRUPT}, {literal(_REPLACEMENT)})"
    malformed = f"CASE WHEN {undecodable} THEN 'not valid UTF-8' ELSE 'malformed record' END"
    judged = f"WHEN {CORRUPT} IS NOT NULL THEN array({_problem('', malformed, CORRUPT)})"
    if reasons:
        each = [f"CASE WHEN {name} IS NOT NULL THEN {_found(x, name)} END" for name, x in reasons.items()]
        # Spark runs `array_compact` outside the code it generates for the stage. That keeps the method
        # for casts and reasons under the 8000 bytes above which the JVM does not compile it (ADR 4).
        judged += (
            f" WHEN coalesce({', '.join(reasons)}) IS NOT NULL THEN array_compact(array({', '.join(each)}))"
        )
    return f"CASE {judged} ELSE CAST(array() AS {PROBLEMS_TYPE}) END"


def _found(target: _Target, reason: Sql) -> Sql:
    value = "NULL" if target.source is None else quoted(target.source)
    return _problem(target.column.name, reason, f"CAST({value} AS string)")


def _operation(targets: Sequence[_Target], typed: Sequence[str], feed: FeedRules | None) -> Sql | None:
    wanted = feed.operation_column.casefold() if feed else None
    found = (n for x, n in zip(targets, typed, strict=True) if x.column.name.casefold() == wanted)
    return next(found, None)


def _reason(target: _Target, typed: Sql, needs: _Needs, operation: Sql | None) -> Sql | None:
    if target.source is None or target.cast is None:
        return None
    found: list[Sql] = []
    if target.cast.problem is not None:
        found.append(target.cast.problem(quoted(target.source), typed))
    name, missing, feed = target.column.name.casefold(), f"{typed} IS NULL", needs.feed
    if feed is not None:
        found += feed.problems(name, typed)
    if name in needs.keys:
        if feed is not None and operation is not None:
            missing = f"{missing} AND {feed.needs_key(operation)}"
        found.append(f"CASE WHEN {missing} THEN 'null key' END")
    elif name in needs.values:
        if feed is not None and operation is not None:
            missing = f"{missing} AND {feed.needs_values(operation)}"
        found.append(f"CASE WHEN {missing} THEN 'required value is missing' END")
    return f"coalesce({', '.join(found)})" if found else None


def _problem(column: str, reason: Sql, value: Sql) -> Sql:
    shown = f"substring({value}, 1, {VALUE_LENGTH})"
    return f"struct({literal(column)} AS `column`, {reason} AS reason, {shown} AS value)"


def _is_none_of(operation: Sql, codes: tuple[str, ...]) -> Sql:
    """True for a missing operation, so that the other problems of the row are reported too."""
    return f"coalesce(NOT ({_code(operation)} IN ({literals(codes)})), true)" if codes else "true"


def _code(operation: Sql) -> Sql:
    return f"lower(trim(CAST({operation} AS string)))"


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
