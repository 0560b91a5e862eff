"""From change records of Debezium, {op, before, after, source, ts_ms} or the same under `payload`, to rows.

| op | becomes |
|---|---|
| c, r | `after` |
| u | `after`; and before it a delete of the key in `before`, where the key has changed |
| d | `before` |
| t | a row without values |
| m, or a record without op, before and after | nothing: a message, heartbeat or tombstone |
| another | a row, whose operation the checks reject |

Beside its own columns, each row has the operation and what `sequence_by` names, under the last part of the
path: `source.lsn` becomes `lsn`. A record that gives no row stays as a row marked NO_CHANGE, so that the
positions of the others in their file are still known.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from tallymark.errors import ConfigError, SourceError
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.model.settings import EnvelopeSettings
from tallymark.model.table import SOURCE_FILE, SOURCE_FILE_HASH, Column
from tallymark.sources.formats.scan import CORRUPT, as_text, named
from tallymark.sources.read_files import SourceFrame, refuse_reserved

RECORD_ORDER = "_tm_record"  # as in checks.conform: ROW_ORDER of the record
NO_CHANGE = "_tm_no_change"  # as in checks.conform: the record changes no row
_MOVED_AWAY = "_tm_moved_away"  # the delete of a key that the record changes
_KEPT = (FILE_ORDER, ROW_BLOCK, CORRUPT, SOURCE_FILE_HASH, SOURCE_FILE)
_OP, _BEFORE, _AFTER, _PAYLOAD = "op", "before", "after", "payload"
_ROW_CODES = ("c", "r", "u", "d", "t")
_NESTED = (t.StructType, t.ArrayType, t.MapType)
_FIELDS_SHOWN = 30


@dataclass(frozen=True)
class _EnvelopeField:
    """A field of the envelope, and its type."""

    value: Expression
    type: t.DataType

    def fields(self) -> dict[str, tuple[str, _EnvelopeField]]:
        """By name in lower case: the name as it is, and the field."""
        if not isinstance(self.type, t.StructType):
            return {}
        return {
            f.name.casefold(): (f.name, _EnvelopeField(self.value.getField(f.name), f.dataType))
            for f in self.type.fields
        }


@dataclass(frozen=True)
class _Image:
    """A column of the row as it was and as it is, in one type."""

    name: str
    before: Expression
    after: Expression


def unwrap(source: SourceFrame, envelope: EnvelopeSettings) -> SourceFrame:
    if not source.columns:  # all files are empty
        return source
    root = _root(source)
    operation, before, after = root.get(_OP), root.get(_BEFORE), root.get(_AFTER)
    if operation is None or (before is None and after is None):
        raise SourceError(
            "the files contain no Debezium envelopes: a record needs op, and before or after",
            hint="if the records are rows, remove cdc.envelope",
            facts={"columns": [column.name for column in source.columns]},
        )
    images = _images(before, after, envelope.key)
    code = operation.value
    marked = _marked(source, code, [image for image in (before, after) if image is not None])
    moved = F.coalesce((code == "u") & _key_differs(images, envelope.key), F.lit(False))
    parts = F.when(moved, F.array(F.lit(True), F.lit(False))).otherwise(F.array(F.lit(False)))
    split = marked.select("*", F.explode(parts).alias(_MOVED_AWAY))
    is_old = F.col(_MOVED_AWAY) | F.coalesce(code == "d", F.lit(False))
    flat = split.select(
        *(F.when(is_old, image.before).otherwise(image.after).alias(image.name) for image in images),
        F.when(F.col(_MOVED_AWAY), F.lit("d")).otherwise(code).alias(envelope.operation_column),
        *(place.value.alias(name) for name, place in _ordering(root, envelope, images).items()),
        *_KEPT,
        # The delete of the old key comes right before the row with the new key.
        (F.col(ROW_ORDER) * 2 + F.when(F.col(_MOVED_AWAY), 0).otherwise(1)).alias(ROW_ORDER),
        F.col(ROW_ORDER).alias(RECORD_ORDER),
        NO_CHANGE,
    )
    technical = {*_KEPT, ROW_ORDER, RECORD_ORDER, NO_CHANGE}
    found = [field for field in flat.schema.fields if field.name not in technical]
    columns = tuple(Column(field.name, field.dataType.simpleString()) for field in found)
    return SourceFrame(flat, columns, source.files)


def _root(source: SourceFrame) -> dict[str, _EnvelopeField]:
    """The fields of the envelope by name in lower case, taken from `payload` if they are there."""
    types = source.frame.schema
    top = {c.name.casefold(): _EnvelopeField(named(c.name), types[c.name].dataType) for c in source.columns}
    if _OP in top or _PAYLOAD not in top:
        return top
    return {name: field for name, (_, field) in top[_PAYLOAD].fields().items()}


def _images(before: _EnvelopeField | None, after: _EnvelopeField | None, key: Sequence[str]) -> list[_Image]:
    """All columns of both images, those of `after` first. Files with only truncates or messages have none:
    then a row has only its key."""
    old = before.fields() if before else {}
    new = after.fields() if after else {}
    names = {folded: name for folded, (name, _) in (old | new).items()}
    in_order = [*new, *(folded for folded in old if folded not in new)]
    nothing = F.lit(None).cast("string")
    if not names:
        return [_Image(name, nothing, nothing) for name in key]
    images = []
    for folded in in_order:
        refuse_reserved(names[folded])
        was, now = old.get(folded, (None, None))[1], new.get(folded, (None, None))[1]
        images.append(_Image(names[folded], *_in_one_type(was, now)))
    return images


def _in_one_type(was: _EnvelopeField | None, now: _EnvelopeField | None) -> tuple[Expression, Expression]:
    """`before` is cast to the type of `after`: in JSON, an image with only NULL has the type string."""
    nothing = F.lit(None)
    if was is None or now is None:
        return (nothing if was is None else was.value), (nothing if now is None else now.value)
    same = was.type == now.type or (
        isinstance(was.type, t.NumericType) and isinstance(now.type, t.NumericType)
    )
    if same:
        return was.value, now.value
    text = F.to_json(was.value) if isinstance(was.type, _NESTED) else was.value.cast("string")
    if isinstance(now.type, _NESTED):
        return F.from_json(text, now.type.simpleString()), now.value
    if isinstance(was.type, _NESTED):
        return text.try_cast(now.type), now.value
    return was.value.try_cast(now.type), now.value


def _marked(source: SourceFrame, code: Expression, images: Sequence[_EnvelopeField]) -> DataFrame:
    """Marks each record that is malformed, and each that changes no row."""
    record = as_text([named(column.name) for column in source.columns])
    no_rows = [F.when(x.value.isNotNull(), record) for x in images if not isinstance(x.type, t.StructType)]
    corrupt = F.coalesce(F.col(CORRUPT), *no_rows)
    empty = reduce(lambda one, other: one & other, [image.value.isNull() for image in images])
    changes_rows = F.coalesce(code.isin(*_ROW_CODES), F.lit(False))
    no_change = F.coalesce(code == "m", F.lit(False)) | (empty & ~changes_rows)
    return source.frame.withColumns({CORRUPT: corrupt, NO_CHANGE: corrupt.isNull() & no_change})


def _key_differs(images: Sequence[_Image], key: Sequence[str]) -> Expression:
    """Only if `before` has the whole key: some databases leave it out."""
    wanted = {name.casefold() for name in key}
    parts = [image for image in images if image.name.casefold() in wanted]
    whole = reduce(lambda one, other: one & other, [x.before.isNotNull() for x in parts], F.lit(True))
    differs = [~x.before.eqNullSafe(x.after) for x in parts]
    return whole & reduce(lambda one, other: one | other, differs, F.lit(False))


def _ordering(
    root: dict[str, _EnvelopeField], envelope: EnvelopeSettings, images: Sequence[_Image]
) -> dict[str, _EnvelopeField]:
    """The columns that the envelope adds for `sequence_by`."""
    columns = {image.name.casefold() for image in images}
    _refuse_collision(envelope.operation_column, "operation_column", columns)
    found: dict[str, _EnvelopeField] = {}
    for path in envelope.sequence_by:
        place = _at(root, path)
        if place is None and path.casefold() in columns:
            continue  # a column of the row itself
        if place is None:
            raise _no_such_field(root, path)
        name = path.rpartition(".")[2]
        _refuse_collision(name, f"sequence_by {path}", columns)
        found[name] = place
    return found


def _at(root: dict[str, _EnvelopeField], path: str) -> _EnvelopeField | None:
    first, *rest = path.casefold().split(".")
    place = root.get(first)
    for part in rest:
        place = place.fields().get(part, (None, None))[1] if place else None
    return place


def _refuse_collision(name: str, whose: str, columns: Collection[str]) -> None:
    if name.casefold() in columns:
        raise ConfigError(
            f"cdc.{whose}: the rows in the envelope have a column {name} of their own",
            hint="give cdc.operation_column another name"
            if whose == "operation_column"
            else "order by another field of the envelope",
            facts={"column": name},
        )


def _no_such_field(root: dict[str, _EnvelopeField], path: str) -> ConfigError:
    inside = [f"{name}.{below}" for name, field in root.items() for below in field.fields()]
    known = [name for name in (*root, *inside) if not name.startswith((f"{_BEFORE}.", f"{_AFTER}."))]
    close = difflib.get_close_matches(path.casefold(), known, n=1)
    return ConfigError(
        f"cdc.sequence_by: the envelope has no field {path}",
        hint=f"did you mean {close[0]}?" if close else "it has " + ", ".join(known[:_FIELDS_SHOWN]),
        facts={"path": path},
    )
