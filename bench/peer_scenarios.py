"""The upserts into Delta tables again, by tools that are not Spark: each in its own process, its own kind of
table, the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path

from peers.run_peer import run_peer
from rows import Batches, start_rows
from spark_engine import Engine
from timing import WARM_UPS, Timed

PEERS = {
    "delta-rs": ("delta_rs", ""),
    "dlt (delta)": ("dlt_merge", "delta"),
    "dlt (duckdb)": ("dlt_merge", "duckdb"),
    "fsspeckit": ("fsspeckit_merge", ""),
}
_LIMIT_SECONDS = 400
SLOW = {"fsspeckit"}  # a minute or more for each load: measured once, and nothing to warm up for


def upsert_by_peers(
    engine: Engine, folder: Path, repetitions: int, table_rows: int, batch_rows: int, peers: tuple[str, ...]
) -> tuple[dict[str, Timed], dict[str, str]]:
    """The times of those that could be measured, and why the others could not."""
    place = folder / "peers"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    start_rows(engine.ours, table_rows).write.parquet(str(place / "start"))
    batches = Batches(engine.ours, place, table_rows, batch_rows)
    files = [batches.file(number) for number in range(repetitions + WARM_UPS)]
    timed, not_measured = {}, {}
    for name in peers:
        peer, destination = PEERS[name]
        given, warm_ups = (files[:1], 0) if name in SLOW else (files, WARM_UPS)
        expected = _expected(engine, place / "start", given)
        work = place / name.replace(" ", "-")
        found = run_peer(
            peer, work, place / "start", given, destination=destination, limit_seconds=_LIMIT_SECONDS
        )
        shutil.rmtree(work, ignore_errors=True)
        if found.not_measured:
            not_measured[name] = found.not_measured
        elif (found.rows, found.checksum) != expected:
            not_measured[name] = f"other rows than expected: {found.rows} {found.checksum}, not {expected}"
        else:
            timed[name] = Timed(found.seconds[warm_ups:], note=found.version)
    shutil.rmtree(place, ignore_errors=True)
    return timed, not_measured


def _expected(engine: Engine, start: Path, files: list[Path]) -> tuple[int, int]:
    """By plain means: the last row of each id."""
    spark = engine.ours
    frames = [spark.read.parquet(str(start)), *(spark.read.parquet(str(file)) for file in files)]
    numbered = [f.selectExpr(f"{at} AS at", "id", "amount_cents") for at, f in enumerate(frames)]
    every = numbered[0]
    for frame in numbered[1:]:
        every = every.unionAll(frame)
    every.createOrReplaceTempView("every_version")
    [[rows, amounts]] = spark.sql(
        "SELECT count(*), sum(amount) FROM "
        "(SELECT max_by(amount_cents, at) AS amount FROM every_version GROUP BY id)"
    ).collect()
    return int(rows), int(amounts)
