"""PostgreSQL by hand, with psycopg 3: what a careful engineer writes without any tool.

One transaction per batch: COPY the CSV file into a temporary table, then INSERT … ON CONFLICT DO UPDATE.
"""

from __future__ import annotations

import io
from pathlib import Path

import psycopg
import pyarrow.csv

from arrow_rows import read_rows
from protocol import Task, Totals, measure

COLUMNS = {
    "id": "bigint",
    "customer": "bigint",
    "status": "text",
    "amount_cents": "bigint",
    "price": "double precision",
    "note": "text",
    "updated_at": "timestamptz",
    "flag": "boolean",
}
TABLE = "copied_orders"
BLOCK_BYTES = 1 << 20


class PostgresCopy:
    version = psycopg.__version__

    def __init__(self, task: Task) -> None:
        self._connection = psycopg.connect(task.url, autocommit=True)
        self._key = task.key
        changed = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != task.key)
        names = ", ".join(COLUMNS)
        self._upsert = (
            f"INSERT INTO {TABLE} ({names}) SELECT {names} FROM incoming"
            f" ON CONFLICT ({task.key}) DO UPDATE SET {changed}"
        )

    def fill(self, files: list[Path]) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        with self._connection.transaction():
            self._connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
            self._connection.execute(f"CREATE TABLE {TABLE} ({columns})")
            for file in files:
                as_csv = io.BytesIO()
                pyarrow.csv.write_csv(read_rows(file), as_csv)
                as_csv.seek(0)
                self._copy(as_csv, TABLE)
            self._connection.execute(f"ALTER TABLE {TABLE} ADD PRIMARY KEY ({self._key})")
        self._connection.execute(f"VACUUM ANALYZE {TABLE}")

    def apply(self, batch: Path) -> None:
        if batch.suffix != ".csv":
            raise ValueError(f"COPY takes CSV, and {batch.name} is none")
        with self._connection.transaction(), batch.open("rb") as file:
            self._connection.execute(f"CREATE TEMP TABLE incoming (LIKE {TABLE}) ON COMMIT DROP")
            self._copy(file, "incoming")
            self._connection.execute(self._upsert)

    def _copy(self, file: io.BufferedIOBase, table: str) -> None:
        header = file.readline().decode().strip()
        with self._connection.cursor().copy(f"COPY {table} ({header}) FROM STDIN (FORMAT csv)") as copy:
            while block := file.read(BLOCK_BYTES):
                copy.write(block)

    def totals(self) -> Totals:
        query = f"SELECT count(*), sum(amount_cents)::bigint FROM {TABLE}"
        rows, checksum = self._connection.execute(query).fetchone()
        return Totals(rows=rows, checksum=checksum)


if __name__ == "__main__":
    measure("postgres_copy", PostgresCopy)
