"""Reads Iceberg tables by PyIceberg, which shares no code with what wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle import Row

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable


def iceberg_rows(table: Path) -> list[Row]:
    """Of the newest metadata, whatever catalog knows it."""
    rows: list[dict[str, Any]] = iceberg_table(table).scan().to_arrow().to_pylist(maps_as_pydicts="strict")
    return rows


def iceberg_table(table: Path) -> StaticTable:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(newest_metadata(table)))


def newest_metadata(table: Path) -> Path:
    """Hadoop catalogs count from `v1.metadata.json`, others from `00000-<uuid>.metadata.json`."""
    files = table.glob("metadata/*.metadata.json")
    return max(files, key=lambda file: int(file.name.lstrip("v").split(".")[0].split("-")[0]))
