"""Another writer commits after the plan, as late as just before main is moved: no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conformance.bench import Bench
from conformance.orders import APPEND, DAY1, INSERT, ORDERS, REFRESH, UPSERT, order
from oracle import Row, canonical
from tallymark.destinations.iceberg import write
from tallymark.errors import TableMoved
from tallymark.model.settings import MergeSettings
from unit.destinations.iceberg.iceberg_bench import iceberg_bench, sql_name

_NEW = "SELECT 9L, 'other', CAST(1 AS decimal(12,2)), TIMESTAMP '2026-11-01 00:00:00'"
_SOURCE = f"(SELECT * FROM ({_NEW}) AS s(id, name, amount, at)) AS s"
OTHERS = {
    "append": f"INSERT INTO {{t}} {_NEW}",
    "insert only": f"MERGE INTO {{t}} AS t USING {_SOURCE} ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "upsert": f"MERGE INTO {{t}} AS t USING {_SOURCE} ON t.id = s.id - 8 WHEN MATCHED THEN UPDATE SET name = s.name "
    "WHEN NOT MATCHED THEN INSERT *",
    "delete": "DELETE FROM {t} WHERE id = 2",
    "overwrite": f"INSERT OVERWRITE {{t}} {_NEW}",
}
OTHER = order(9, "other")
AFTER: dict[str, list[Row]] = {
    "append": [*DAY1, OTHER],
    "insert only": [*DAY1, OTHER],
    "upsert": [order(1, "other"), order(2), order(3)],
    "delete": [order(1), order(3)],
    "overwrite": [OTHER],
}
OURS = [order(9, "ours"), order(10, "ours")]
# What the same load then adds: it meets the other's row of key 9.
LOADS: dict[str, tuple[MergeSettings, Callable[[list[Row]], list[Row]]]] = {
    "append": (APPEND, lambda rows: [*rows, order(9, "ours"), order(10, "ours")]),
    "insert": (INSERT, lambda rows: rows + [o for o in OURS if o["id"] not in {r["id"] for r in rows}]),
    "upsert": (UPSERT, lambda rows: [r for r in rows if r["id"] not in (9, 10)] + OURS),
    "overwrite": (REFRESH, lambda rows: OURS),
}


@pytest.fixture(params=["hadoop", "sqlite", "postgres"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    match request.param:
        case "hadoop":
            yield {}
        case "sqlite":
            yield {"catalog": "jdbc", "uri": f"sqlite:///{tmp_path}/catalog.db"}
        case _:
            yield {"catalog": "jdbc", "uri": request.getfixturevalue("postgres_by_tcp")}


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
def test_a_commit_right_before_main_is_moved(
    other: str, options: dict[str, Any], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(iceberg_bench(spark, tmp_path, **options), "upsert", other, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("ours", ["append", "insert", "overwrite"])
def test_whatever_the_load_does(
    ours: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(iceberg_bench(spark, tmp_path), ours, "append", monkeypatch)


def test_two_merges_that_match_nothing_do_not_both_insert(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """iceberg#12653: a MERGE that matches nothing commits as an append, which is retried on top of others."""
    check(iceberg_bench(spark, tmp_path), "insert", "insert only", monkeypatch)


@pytest.mark.slow
def test_an_overwrite_does_not_lose_what_was_appended_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """iceberg#2808: the appended rows are counted as deleted, since the load is planned again."""
    bench = iceberg_bench(spark, tmp_path)
    check(bench, "overwrite", "append", monkeypatch)
    assert bench.target.markers(None).last_sequence == bench.sequence


def check(bench: Bench, ours: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, expected = LOADS[ours]
    bench.load(UPSERT, ORDERS, DAY1)
    publish = write.publish

    def late(spark: SparkSession, target: write.IcebergTarget, branch: str) -> None:
        spark.sql(OTHERS[other].format(t=sql_name(bench))).collect()
        publish(spark, target, branch)

    monkeypatch.setattr(write, "publish", late)
    plan = bench.plan(settings, ORDERS)
    bench.sequence += 1
    with bench.prepare(plan, ORDERS, OURS) as prepared, pytest.raises(TableMoved):
        prepared.commit(bench.marker("ours", prepared.counts))
    assert canonical(bench.rows()) == canonical(AFTER[other])
    monkeypatch.setattr(write, "publish", publish)
    bench.load(settings, ORDERS, OURS, "ours")
    assert canonical(bench.rows()) == canonical(expected(AFTER[other]))
    branches = bench.spark.sql(f"SELECT name FROM {sql_name(bench)}.refs").collect()
    assert [row[0] for row in branches] == ["main"]
