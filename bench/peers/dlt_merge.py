"""dlt: `write_disposition` merge, strategy upsert, into Delta, DuckDB or PostgreSQL.

A file in the format that the destination loads (CSV for PostgreSQL, else Parquet) is imported as it is,
which dlt documents as `with_file_import`; any other is read into Arrow first.

Tried on a busy machine, 100,000 rows and batches of 10,000, seconds a batch: into PostgreSQL 0.4 to 0.5
imported (0.12 to 0.19 of CPU), through Arrow 0.5 to 1.1 (0.25 to 0.29 of CPU), Parquet by its ADBC driver
0.4 to 0.8, strategy delete-insert 0.4 to 0.9. Into Delta 1.3 to 1.8, whichever way: the import, one worker or
`deltalake_streamed_exec` made no difference that could be told from noise. Little of that is CPU time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.compute

from arrow_rows import SCHEMA, read_rows
from protocol import Task, Totals, measure

TABLE = "orders"
DATASET = "dlt_orders"
SETTINGS = {
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RUNTIME__LOG_LEVEL": "ERROR",
    "LOAD__DELETE_COMPLETED_JOBS": "true",
    "DESTINATION__FILESYSTEM__DELTALAKE_STREAMED_EXEC": "false",
}
FORMATS = {"delta": "parquet", "duckdb": "parquet", "postgres": "csv"}


class Dlt:
    def __init__(self, task: Task) -> None:
        # dlt looks for its settings, and for a folder of its own, when it is imported.
        os.environ.update(SETTINGS, DLT_DATA_DIR=str(task.work / "dlt"))
        import dlt

        self.version = dlt.__version__
        self._dlt = dlt
        self._task = task
        self._format = FORMATS[task.destination]
        self._pipeline = dlt.pipeline(
            "peer",
            destination=self._destination(),
            dataset_name=DATASET,
            pipelines_dir=str(task.work / "pipelines"),
        )

    def _destination(self) -> Any:
        destinations = self._dlt.destinations
        match self._task.destination:
            case "delta":
                return destinations.filesystem(bucket_url=str(self._task.work / "lake"))
            case "duckdb":
                return destinations.duckdb(str(self._task.work / "orders.duckdb"))
            case _:
                return destinations.postgres(postgres_credentials(self._task.url))

    def fill(self, files: list[Path]) -> None:
        if self._task.destination == "postgres":
            with self._pipeline.sql_client() as client:
                for schema in (DATASET, f"{DATASET}_staging"):
                    client.execute_sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        self._run("append", files)

    def apply(self, batch: Path) -> None:
        self._run({"disposition": "merge", "strategy": "upsert"}, [batch])

    def _run(self, disposition: Any, files: list[Path]) -> None:
        from dlt.common.libs.pyarrow import py_arrow_to_table_schema_columns

        resource = self._dlt.resource(
            (self._item(file) for file in files),
            name=TABLE,
            columns=py_arrow_to_table_schema_columns(SCHEMA),
            primary_key=self._task.key,
            write_disposition=disposition,
            table_format="delta" if self._task.destination == "delta" else None,
        )
        self._pipeline.run(resource, loader_file_format=self._format).raise_on_failed_jobs()

    def _item(self, file: Path) -> Any:
        if file.suffix == f".{self._format}":
            return self._dlt.mark.with_file_import(str(file), self._format)
        return read_rows(file)

    def totals(self) -> Totals:
        if self._task.destination == "delta":
            from dlt.common.libs.deltalake import get_delta_tables

            table = get_delta_tables(self._pipeline, TABLE)[TABLE].to_pyarrow_table(columns=["amount_cents"])
            amounts = table["amount_cents"]
            return Totals(rows=len(amounts), checksum=pyarrow.compute.sum(amounts).as_py())
        with self._pipeline.sql_client() as client:
            query = f"SELECT count(*), sum(amount_cents) FROM {TABLE}"
            rows, checksum = client.execute_sql(query)[0]
        return Totals(rows=rows, checksum=int(checksum))


def postgres_credentials(url: str) -> dict[str, Any]:
    """dlt wants a host, and cannot put the folder of a local socket there: libpq takes that from the
    query, which wins over the host."""
    from psycopg2.extensions import parse_dsn

    parts = parse_dsn(url)
    local_socket = parts["host"].startswith("/")
    return {
        "host": "localhost" if local_socket else parts["host"],
        "port": int(parts.get("port", 5432)),
        "database": parts["dbname"],
        "username": parts["user"],
        "password": parts.get("password", ""),
        "query": {"host": parts["host"]} if local_socket else {},
    }


if __name__ == "__main__":
    measure("dlt_merge", Dlt, destinations=["delta", "duckdb", "postgres"])
