"""Types between Spark and DuckDB, nested types included."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import SqlglotError

from tallymark.destinations.warehouse.engine import SqlDialect
from tallymark.errors import Unsupported
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import ArrayOf, MapOf, Primitive, SparkType, StructOf, stored_type

DIALECT = SqlDialect("duckdb")

_NATIVE = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "void": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    JSON_TYPE: "JSON",
}
_Type = exp.DataType.Type
_SPARK = {
    _Type.BOOLEAN: "boolean",
    _Type.TINYINT: "tinyint",
    _Type.SMALLINT: "smallint",
    _Type.INT: "int",
    _Type.BIGINT: "bigint",
    _Type.INT128: "decimal(38,0)",
    _Type.UTINYINT: "smallint",
    _Type.USMALLINT: "int",
    _Type.UINT: "bigint",
    _Type.UBIGINT: "decimal(20,0)",
    _Type.FLOAT: "float",
    _Type.DOUBLE: "double",
    _Type.VARBINARY: "binary",
    _Type.BINARY: "binary",
    _Type.DATE: "date",
    _Type.TIMESTAMPTZ: "timestamp",
    _Type.TIMESTAMP: "timestamp_ntz",
    _Type.TIMESTAMPNTZ: "timestamp_ntz",
    _Type.TIMESTAMP_S: "timestamp_ntz",
    _Type.TIMESTAMP_MS: "timestamp_ntz",
    _Type.TIMESTAMP_NS: "timestamp_ntz",
    _Type.JSON: JSON_TYPE,
}
_KIND = "kind"  # of a struct's field, in sqlglot


def native_type(spark_type: str) -> str:
    """Raises Unsupported for what cannot be stored without loss."""
    return _native(stored_type(spark_type), spark_type)


def exported_type(spark_type: str) -> str:
    """The type of a value in an exported Parquet file."""
    return "VARCHAR" if spark_type == JSON_TYPE else native_type(spark_type)


def _native(parsed: SparkType, whole: str) -> str:
    match parsed:
        case Primitive(name="decimal", sizes=(precision, scale)):
            return f"DECIMAL({precision},{scale})"
        case StructOf(members=members):
            return (
                f"STRUCT({', '.join(f'{DIALECT.quote(m.name)} {_native(m.type, whole)}' for m in members)})"
            )
        case ArrayOf(element=element):
            return f"{_native(element, whole)}[]"
        case MapOf(key=key, value=value):
            return f"MAP({_native(key, whole)}, {_native(value, whole)})"
        case flat if flat.family in _NATIVE:
            return _NATIVE[flat.family]
        case _:
            raise Unsupported(f"DuckDB has no type for {whole}", hint="cast the column in `columns`")


def spark_type(native: str) -> str:
    try:
        return _spark(exp.DataType.build(native, dialect="duckdb"))
    except SqlglotError:
        return "string"


def _spark(native: exp.DataType) -> str:
    inner = [node for node in native.expressions if isinstance(node, exp.DataType | exp.ColumnDef)]
    match native.this:
        case _Type.DECIMAL:
            sizes = [node.name for node in native.expressions] or ["18", "3"]
            return f"decimal({','.join(sizes)})"
        case _Type.STRUCT if inner:
            return f"struct<{','.join(f'{node.name}:{_spark(node.args[_KIND])}' for node in inner)}>"
        case _Type.LIST | _Type.ARRAY if inner and isinstance(inner[0], exp.DataType):
            return f"array<{_spark(inner[0])}>"
        case _Type.MAP if len(inner) == 2:
            return f"map<{','.join(_spark(node) for node in inner if isinstance(node, exp.DataType))}>"
        case other:
            return _SPARK.get(other, "string")
