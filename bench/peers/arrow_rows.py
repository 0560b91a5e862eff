"""The benchmark's table as Arrow: for the peers that take Arrow data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("status", pa.string()),
        ("amount_cents", pa.int64()),
        ("price", pa.float64()),
        ("note", pa.string()),
        ("updated_at", pa.timestamp("us", tz="UTC")),
        ("flag", pa.bool_()),
    ]
)


def read_rows(file: Path) -> pa.Table:
    if file.suffix == ".csv":
        types = {field.name: field.type for field in SCHEMA}
        convert = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
        return pa.csv.read_csv(file, convert_options=convert).select(SCHEMA.names)
    return pa.parquet.read_table(file).select(SCHEMA.names).cast(SCHEMA)


def read_all(files: list[Path]) -> pa.Table:
    return pa.concat_tables([read_rows(file) for file in files])
