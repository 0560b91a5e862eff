"""Types between Spark and Iceberg, nested types included."""

from __future__ import annotations

from tallymark.errors import Unsupported
from tallymark.model.types import ArrayOf, MapOf, Primitive, SparkType, StructMember, StructOf, stored_type

_WHOLE_NUMBERS = ("tinyint", "smallint")  # Iceberg's smallest is int
_AS_THEY_ARE = (
    "boolean",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "variant",
)


def stored_as(spark_type: str) -> str:
    """Raises Unsupported for what cannot be stored without loss."""
    return str(_stored(stored_type(spark_type), spark_type))


def _stored(kind: SparkType, whole: str) -> SparkType:
    match kind:
        case Primitive(name=name) if name in _WHOLE_NUMBERS:
            return Primitive("int")
        case Primitive(name=name) if name in _AS_THEY_ARE:
            return kind
        case Primitive() if kind.family in ("string", "void"):
            return Primitive("string")
        case ArrayOf(element=element):
            return ArrayOf(_stored(element, whole))
        case MapOf(key=key, value=value):
            return MapOf(_stored(key, whole), _stored(value, whole))
        case StructOf(members=members):
            return StructOf(tuple(StructMember(m.name, _stored(m.type, whole)) for m in members))
        case _:
            raise Unsupported(
                f"Iceberg has no type for {whole}",
                hint="give the column another type under `columns`, such as string",
            )
