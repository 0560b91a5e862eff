"""Parquet, ORC and Avro: files that carry their types.

Spark merges their schemas if only columns differ. If types differ, files are grouped by schema and united by
name, each column in a type that holds the values of all; if there is none, the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StructField,
    StructType,
)

from tallymark.errors import UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.sources.formats.scan import (
    Options,
    Request,
    load,
    named,
    options_for,
    positioned,
    positioned_unchanged,
    united,
)
from tallymark.sources.read_failures import blame, unreadable_from
from tallymark.sources.stores import FileStore, stores_of

Group = tuple[StructType, list[SourceFile]]
_DIGITS: list[tuple[type[DataType], int]] = [(ByteType, 3), (ShortType, 5), (IntegerType, 10), (LongType, 20)]
_EXACT_IN_DOUBLE = (ByteType, ShortType, IntegerType, FloatType, DoubleType)
_AVRO_HEAD = 64 << 10
_AVRO_MAGIC = b"Obj\x01"
_LONGEST_AVRO_HEAD = 16 << 20
_LONGEST_NUMBER = 63  # bits


def read_parquet(request: Request) -> DataFrame | None:
    return _read_merging(request, "parquet")


def read_orc(request: Request) -> DataFrame | None:
    return _read_merging(request, "orc")


def read_avro(request: Request) -> DataFrame | None:
    """Spark reads all files with the schema of one, so they are grouped by the schema in their head."""
    _refuse_empty(request, "Avro")
    options = options_for(request.source, {})
    by_schema: dict[str, list[SourceFile]] = {}
    files = {file.path: file for file in request.files}
    for store, paths in stores_of(files, lambda: request.spark):
        for path, schema in writer_schema(store, paths, _AVRO_HEAD).items():
            by_schema.setdefault(schema, []).append(files[path])
    groups = [(_schema(request, "avro", options, group), group) for group in by_schema.values()]
    return _unite(request, "avro", options, groups)


def _read_merging(request: Request, spark_format: str) -> DataFrame | None:
    _refuse_empty(request, spark_format.capitalize())
    options = options_for(request.source, {"mergeSchema": "true"})
    try:
        merged = load(request, spark_format, options, request.files)
    except Exception as error:
        if not any(mark in str(error) for mark in ("CANNOT_MERGE_SCHEMAS", "COLUMN_ALREADY_EXISTS")):
            probe = _probe(request, spark_format, options)
            raise blame(error, request.files, probe) from error
        return _unite(request, spark_format, options, _by_schema(request, spark_format, options))
    return positioned_unchanged(merged, merged.columns)


def _refuse_empty(request: Request, title: str) -> None:
    for file in request.files:
        if file.size == 0:
            raise UnreadableFile(file.path, f"is empty (0 bytes): not a file in {title} format")


def _probe(request: Request, spark_format: str, options: Options) -> Callable[[SourceFile], StructType]:
    return lambda file: load(request, spark_format, options, [file]).schema


def _schema(request: Request, spark_format: str, options: Options, files: Sequence[SourceFile]) -> StructType:
    try:
        return load(request, spark_format, options, files).schema
    except Exception as error:
        raise blame(error, files, _probe(request, spark_format, options)) from error


def _by_schema(request: Request, spark_format: str, options: Options) -> list[Group]:
    with ThreadPoolExecutor(4) as pool:
        schemas = list(pool.map(lambda file: _schema(request, spark_format, options, [file]), request.files))
    groups: dict[str, Group] = {}
    for file, schema in zip(request.files, schemas, strict=True):
        groups.setdefault(schema.simpleString(), (schema, []))[1].append(file)
    return list(groups.values())


def _unite(request: Request, spark_format: str, options: Options, groups: list[Group]) -> DataFrame | None:
    target = _common_schema(groups)
    frames = []
    for schema, files in groups:
        frame = load(request, spark_format, options, files, schema)
        columns = []
        for field in schema.fields:
            wanted = target[field.name.casefold()]
            column = named(field.name)
            same = isinstance(wanted.dataType, StructType) or wanted.dataType == field.dataType
            columns.append(
                column.alias(wanted.name) if same else column.cast(wanted.dataType).alias(wanted.name)
            )
        frames.append(positioned(frame, columns))
    try:
        return united(frames)
    except Exception as error:  # structs whose fields differ in type
        last = groups[-1][1][0]
        raise unreadable_from(error, request.files) or UnreadableFile(
            last.path, f"its nested columns do not fit those of {groups[0][1][0].path}: {str(error)[:300]}"
        ) from error


def _common_schema(groups: list[Group]) -> dict[str, StructField]:
    target: dict[str, StructField] = {}
    origin: dict[str, str] = {}
    for schema, files in groups:
        for field in schema.fields:
            key = field.name.casefold()
            before = target.get(key)
            wider = wider_type(before.dataType, field.dataType) if before else field.dataType
            if wider is None and before:
                raise UnreadableFile(
                    files[0].path,
                    f"column {field.name} is {field.dataType.simpleString()}, "
                    f"but {before.dataType.simpleString()} in {origin[key]}",
                    hint="load them by separate pipelines, or rewrite one with the other's type",
                )
            target[key] = StructField(before.name if before else field.name, wider or field.dataType)
            origin.setdefault(key, files[0].path)
    return target


def wider_type(a: DataType, b: DataType) -> DataType | None:
    """The type that holds every value of both unchanged, or None."""
    if a == b or isinstance(b, NullType):
        return a
    if isinstance(a, NullType):
        return b
    if isinstance(a, StructType) and isinstance(b, StructType):
        return a  # united by name, field by field
    whole = [kind for kind, _ in _DIGITS]
    if type(a) in whole and type(b) in whole:
        return a if whole.index(type(a)) >= whole.index(type(b)) else b
    if isinstance(a, _EXACT_IN_DOUBLE) and isinstance(b, _EXACT_IN_DOUBLE):
        return DoubleType()
    return _wider_decimal(a, b)


def _wider_decimal(a: DataType, b: DataType) -> DataType | None:
    first, second = _as_decimal(a), _as_decimal(b)
    if first is None or second is None:
        return None
    scale = max(first.scale, second.scale)
    precision = max(first.precision - first.scale, second.precision - second.scale) + scale
    return DecimalType(precision, scale) if precision <= 38 else None


def _as_decimal(kind: DataType) -> DecimalType | None:
    if isinstance(kind, DecimalType):
        return kind
    digits = next((n for whole, n in _DIGITS if isinstance(kind, whole)), None)
    return DecimalType(digits, 0) if digits else None


# The schema in the head of an Avro file, read without a library for it


class _TooShort(Exception):
    """The head ends before the schema does."""


def writer_schema(store: FileStore, paths: Sequence[str], size: int) -> dict[str, str]:
    """By path. If a schema is longer than `size`, more is read."""
    schemas: dict[str, str] = {}
    left = list(paths)
    while left:
        for path, head in store.head(left, size).items():
            if not head.startswith(_AVRO_MAGIC):
                raise UnreadableFile(path, "is not an Avro file: it does not begin with Obj")
            try:
                schemas[path] = schema_of(head)
            except _TooShort:
                if len(head) < size:
                    raise UnreadableFile(path, "is cut off: its Avro schema is not complete") from None
                if size >= _LONGEST_AVRO_HEAD:
                    longest = f"{_LONGEST_AVRO_HEAD >> 20} MiB"
                    raise UnreadableFile(path, f"its Avro schema is longer than {longest}") from None
        left = [path for path in left if path not in schemas]
        size = min(size * 16, _LONGEST_AVRO_HEAD)
    return schemas


def schema_of(head: bytes) -> str:
    """The file's metadata is a map in blocks of (name, value) pairs; a count of 0 ends it."""
    at = len(_AVRO_MAGIC)
    while True:
        count, at = _number(head, at)
        if count == 0:
            return ""
        if count < 0:  # the size of the block follows
            _, at = _number(head, at)
        for _ in range(abs(count)):
            name, at = _bytes(head, at)
            value, at = _bytes(head, at)
            if name == b"avro.schema":
                return value.decode("utf-8", "replace")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Zigzag encoding, seven bits in each byte, the lowest first."""
    raw = shift = 0
    while True:
        if at >= len(data) or shift > _LONGEST_NUMBER:
            raise _TooShort
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    if length < 0 or at + length > len(data):
        raise _TooShort
    return data[at : at + length], at + length
