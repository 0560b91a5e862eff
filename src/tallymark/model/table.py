"""What a table looks like: names, columns, versions. Types are Spark SQL type strings everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

JSON_TYPE = "json"  # nested values in a destination without nested types


@dataclass(frozen=True)
class Column:
    name: str
    type: str  # Spark SQL, lower case: "bigint", "decimal(12,2)", "struct<a:bigint>"; or JSON_TYPE
    nullable: bool = True


@dataclass(frozen=True)
class TableShape:
    """An existing table as the plan sees it. `version` pins what the labels were computed on."""

    columns: tuple[Column, ...]
    version: str
    table_id: str = ""  # changes when a table is dropped and created again
    properties: dict[str, str] = field(default_factory=dict)
    unique_by: tuple[str, ...] = ()  # columns known to be unique since Tallymark's last load

    def column(self, name: str) -> Column | None:
        return find_column(self.columns, name)


def find_column(columns: Iterable[Column], name: str) -> Column | None:
    """Names match case-insensitively, as in Spark."""
    wanted = name.casefold()
    return next((column for column in columns if column.name.casefold() == wanted), None)


SOURCE_FILE_HASH = "_source_file_hash"
SOURCE_FILE = "_source_file"
INGESTED_AT = "_ingested_at"
PROVENANCE_COLUMNS = (
    Column(SOURCE_FILE_HASH, "string"),
    Column(SOURCE_FILE, "string"),
    Column(INGESTED_AT, "timestamp"),
)


def is_provenance(name: str) -> bool:
    return name.casefold() in {column.name for column in PROVENANCE_COLUMNS}
