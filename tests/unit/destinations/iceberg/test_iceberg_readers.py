"""Readers that nobody here wrote find the rows: deletes by position and by vector, rewritten and evolved tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.bench import comparable, load_both
from conformance.orders import CDC, DAY1, DEDUPLICATE, FEED, ORDERS, UPSERT, event, order
from iceberg_readers import READERS, duckdb_iceberg_rows
from oracle import Oracle, Row, canonical
from tallymark.model.settings import MergeSettings
from unit.destinations.iceberg.iceberg_bench import iceberg_bench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not READERS.exists(), reason="make test-slow installs this DuckDB"),
]

HISTORIES: dict[str, tuple[MergeSettings, str, list[list[Row]]]] = {
    "upsert": (
        UPSERT,
        ORDERS,
        [DAY1, [order(4), order(1, "b")], [order(1, None), order(2, "z", None), order(9)]],
    ),
    "changes": (
        CDC,
        FEED,
        [[event("i", 1), event("i", 2), event("i", 3)], [event("d", 1, day=2), event("u", 3, "b", day=2)]],
    ),
    "deduplicate": (DEDUPLICATE, ORDERS, [DAY1, [order(1, "new", day=5), order(1, "old", day=2)], []]),
}


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize(
    ("version", "mode"), [(3, "merge-on-read"), (2, "merge-on-read"), (2, "copy-on-write")]
)
def test_pyiceberg_and_duckdb_find_the_rows(
    name: str, version: int, mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    settings, schema, batches = HISTORIES[name]
    bench = iceberg_bench(spark, tmp_path, format_version=version, write_mode=mode)
    oracle = Oracle(settings)
    for batch in batches:
        load_both(bench, oracle, schema, batch)
    expected = canonical(comparable(oracle.rows))
    assert canonical(bench.rows()) == expected
    found = duckdb_iceberg_rows(tmp_path / "ice" / "silver" / "orders")
    plain = sorted((row["id"], row["name"], str(row["amount"]), str(row["at"])[:10]) for row in oracle.rows)
    assert sorted((row["id"], row["name"], str(row["amount"]), str(row["at"])[:10]) for row in found) == plain
