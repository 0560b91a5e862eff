"""Reads Iceberg tables by PyIceberg and DuckDB, which share no code with what wrote them."""

from __future__ import annotations

import json
import subprocess
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


READERS = Path(__file__).parents[1] / ".uv" / "readers" / "bin" / "python"  # made by `make test-slow`
_BY_DUCKDB = """
import json, sys
import duckdb
from importlib.metadata import files
connection = duckdb.connect()
for name in ("avro", "httpfs", "iceberg"):
    [found] = [f for f in files(f"duckdb-extension-{name}") if f.suffix == ".duckdb_extension"]
    connection.execute(f"LOAD '{found.locate()}'")
found = connection.execute(f"SELECT * FROM iceberg_scan('{sys.argv[1]}')")
names = [column[0] for column in found.description]
print(json.dumps([dict(zip(names, row)) for row in found.fetchall()], default=str))
"""


def duckdb_iceberg_rows(table: Path) -> list[Row]:
    """What JSON has no type for is text."""
    command = [str(READERS), "-c", _BY_DUCKDB, str(newest_metadata(table))]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    rows: list[Row] = json.loads(found.stdout)
    return rows


def newest_metadata(table: Path) -> Path:
    """Hadoop catalogs count from `v1.metadata.json`, others from `00000-<uuid>.metadata.json`."""
    files = table.glob("metadata/*.metadata.json")
    return max(files, key=lambda file: int(file.name.lstrip("v").split(".")[0].split("-")[0]))
