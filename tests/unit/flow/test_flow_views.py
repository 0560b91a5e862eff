"""`materialized: view`: the query is kept, once for each form of it. Nothing here starts Spark, except where a
transform reads a view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from tallymark.cli.output.plans import plan as shown
from tallymark.errors import ConfigError
from tallymark.ledger.ledger import Ledger
from tallymark.model.receipt import Marker
from tallymark.model.report import DeferredInput, Outcome, PlanReport
from tallymark.project import validate
from tallymark.spark import Sessions
from unit.flow.shop import ORDERS, DatabaseShop, Killed, dies

BIG = """-- @materialized: view
SELECT order_id, amount FROM {{ ref('silver.orders') }} WHERE amount > {{ var('much', 10) }}
"""


class ViewShop(DatabaseShop):
    """Its orders were loaded by somebody else, so that no Spark is needed."""

    def open(self) -> tm.Project:
        return tm.Project(self.root)

    def write(self, text: str, name: str = "gold.big", file: str = "pipeline.sql") -> None:
        folder = self.root / "pipelines" / name.replace(".", "/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)

    def move(self, old: str, new: str, text: str) -> None:
        (self.root / "pipelines/gold/big" / old).unlink()
        self.write(text, file=new)

    def big(self) -> list[tuple[Any, ...]]:
        return self.rows("gold.big", "order_id")

    def definition(self) -> str:
        return str(self.sql("SELECT sql FROM sqlite_schema WHERE name = 'gold.big'")[0][0])

    def planned(self, name: str = "gold.big") -> PlanReport:
        with self.open() as project:
            return project.plan(name)[0]

    def problem(self) -> str:
        with pytest.raises(ConfigError) as refused:
            self.open()
        findings = [finding for finding in validate(self.root) if not finding.ok]
        told = [f"{p['key']}: {p['message']}" if p["key"] else p["message"] for p in _problems(refused.value)]
        assert [finding.detail for finding in findings] == told
        return str(refused.value)


def _problems(error: ConfigError) -> list[dict[str, Any]]:
    found: Any = error.facts["problems"]
    return list(found)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ViewShop:
    def no_spark(self: Sessions) -> SparkSession:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(Sessions, "isolated", no_spark)
    made = DatabaseShop.at(tmp_path, None)  # type: ignore[arg-type]
    shop = ViewShop(made.root, made.spark)
    shop.pipeline("silver.orders", ORDERS)
    shop.sql('CREATE TABLE "silver.orders" (order_id BIGINT, status TEXT, amount "DECIMAL_TEXT(12,2)")')
    shop.sql(
        "INSERT INTO \"silver.orders\" VALUES (1, 'new', '9.50'), (2, 'paid', '10.25'), (3, 'x', '200.00')"
    )
    shop.write(BIG)
    return shop


def test_a_view_is_made_once_and_shows_what_its_inputs_hold(shop: ViewShop) -> None:
    report = shop.load("gold.big")
    assert (report.outcome, report.receipts[0].way, report.receipts[0].total) == (Outcome.LOADED, "view", 0)
    assert shop.big() == [(2,), (3,)]
    before = shop.definition()
    shop.sql("INSERT INTO \"silver.orders\" VALUES (4, 'new', '11.00')")
    assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW
    assert (shop.big(), shop.definition()) == ([(2,), (3,), (4,)], before)


def test_nothing_new_writes_nothing(shop: ViewShop) -> None:
    shop.load("gold.big")
    state = (shop.root / "shop.db").read_bytes()
    assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW
    assert (shop.root / "shop.db").read_bytes() == state


def test_changed_code_replaces_it_once_and_going_back_once_more(shop: ViewShop) -> None:
    shop.load("gold.big")
    for text, expected in (
        (BIG.replace("amount >", "amount > 100 +"), [(3,)]),
        (BIG, [(2,), (3,)]),
        (BIG.replace("order_id, amount", "order_id, status"), [(2,), (3,)]),
    ):
        shop.write(text)
        assert shop.load("gold.big").outcome is Outcome.LOADED
        assert shop.big() == expected
        assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW


def test_comments_and_unread_columns_are_no_change_but_variables_are(shop: ViewShop) -> None:
    shop.load("gold.big")
    shop.write(BIG + "-- said again\n")
    shop.sql('ALTER TABLE "silver.orders" ADD COLUMN more TEXT')
    assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW
    shop.pipeline("gold.big", "vars: {much: 100}")
    assert shop.load("gold.big").outcome is Outcome.LOADED
    assert shop.big() == [(3,)]


def test_a_lost_record_is_settled_by_the_marker(shop: ViewShop, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        shop.run("gold.big")
    made = shop.definition()
    report = shop.load("gold.big")
    assert (len(report.recovered), len(report.receipts)) == (1, 0)
    shop.lose_ledger()
    assert len(shop.load("gold.big").recovered) == 1
    assert (shop.load("gold.big").outcome, shop.definition()) == (Outcome.NOTHING_NEW, made)


def test_after_a_lost_ledger_an_earlier_form_of_it_is_no_proof(shop: ViewShop) -> None:
    shop.load("gold.big")
    shop.write(BIG.replace("amount >", "amount > 100 +"))
    shop.load("gold.big")
    shop.lose_ledger()
    shop.write(BIG)
    assert shop.load("gold.big").outcome is Outcome.LOADED
    assert shop.big() == [(2,), (3,)]


def test_a_death_before_the_commit_is_retried(shop: ViewShop, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Marker, "of", dies)
        shop.run("gold.big")
    assert not shop.has("gold.big")
    assert shop.load("gold.big").outcome is Outcome.LOADED
    assert shop.big() == [(2,), (3,)]


def test_a_retry_makes_what_was_begun_or_nothing(shop: ViewShop, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Marker, "of", dies)
        shop.run("gold.big")
    shop.write(BIG.replace("amount >", "amount > 100 +"))
    first = shop.run("gold.big")
    assert "gold/big/pipeline.sql" in first.failures[0].message and len(first.failures) == 1
    shop.load("gold.big")
    assert shop.big() == [(3,)]
    assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW


def test_a_dropped_view_is_made_again(shop: ViewShop) -> None:
    shop.load("gold.big")
    shop.write(BIG.replace("amount >", "amount > 100 +"))
    shop.load("gold.big")
    shop.sql('DROP VIEW "gold.big"')
    report = shop.load("gold.big")
    assert report.outcome is Outcome.LOADED and len(report.undone) == 2
    assert shop.big() == [(3,)]
    assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW


def test_what_somebody_else_made_there_is_left_alone(shop: ViewShop) -> None:
    for made in (
        'CREATE VIEW "gold.big" AS SELECT 7 AS order_id',
        'CREATE TABLE "gold.big" (order_id BIGINT)',
    ):
        shop.sql(made)
        for failure in (shop.run("gold.big").failures[0], shop.planned().failure):
            assert failure is not None and failure.code == "TM501"
            assert "gold.big" in failure.message and "choose another `table`" in failure.hint
        assert shop.definition() == made
        shop.sql(f'DROP {made.split()[1]} "gold.big"')
    shop.load("gold.big")
    shop.sql('DROP VIEW "gold.big"')
    shop.sql('CREATE VIEW "gold.big" AS SELECT 7 AS order_id')
    assert "somebody has changed" in shop.run("gold.big").failures[0].message
    assert shop.big() == [(7,)]


def test_a_view_does_not_become_a_table_by_itself(shop: ViewShop) -> None:
    shop.load("gold.big")
    shop.write(BIG.replace("-- @materialized: view", "-- now a table"))
    failure = shop.planned().failure
    assert failure is not None and "is a view" in failure.message and "drop the view" in failure.hint


def test_an_input_that_is_not_there_yet_is_waited_for(shop: ViewShop) -> None:
    shop.sql('DROP TABLE "silver.orders"')
    report = shop.load("gold.big")
    assert report.discovery.waiting == (DeferredInput("silver.orders", "its table does not exist yet"),)
    assert not shop.has("gold.big")


def test_a_plan_shows_the_statement_and_writes_nothing(shop: ViewShop) -> None:
    planned = shop.planned()
    assert (planned.shape, planned.creates_table, planned.failure) == ("View", True, None)
    assert planned.sql.startswith('CREATE VIEW "gold.big" AS') and '"silver.orders"' in planned.sql
    assert not shop.has("gold.big") and not shop.has("_tallymark_fence")
    text = "\n".join(getattr(block, "text", "") for block in shown([planned], with_sql=False).blocks)
    assert "→ view gold.big (created by the load)" in text and planned.sql in text and "rows" not in text
    shop.load("gold.big")
    assert shop.planned().empty and shop.planned().is_view
    shop.write(BIG.replace("amount >", "amount > 100 +"))
    again = shop.planned()
    assert again.sql.startswith('CREATE OR REPLACE VIEW "gold.big" AS') and not again.creates_table


def test_what_the_database_cannot_say_is_told_with_the_file(shop: ViewShop) -> None:
    shop.write(BIG.replace("amount FROM", "upper(status) AS status FROM"))
    for failure in (shop.run("gold.big").failures[0], shop.planned().failure):
        assert failure is not None and failure.code == "TM404"
        assert "gold/big/pipeline.sql" in failure.message and "UPPER" in failure.message
    assert not shop.has("gold.big")


def test_history_and_status_tell_of_it(shop: ViewShop) -> None:
    shop.load("gold.big")
    with shop.open() as project:
        [record] = project.history("gold.big")
        assert [one.strategy for one in project.status()] == ["view", "upsert"]
    assert record.receipt is not None and record.receipt.strategy == "view"
    assert ("gold.big", True, "view gold.big") in [(f.subject, f.ok, f.detail) for f in validate(shop.root)]


REFUSED: dict[str, tuple[Callable[[ViewShop], None], str]] = {
    "another destination": (
        lambda shop: shop.pipeline("silver.orders", f"destination: other\n{ORDERS}"),
        "pipeline.sql:2: silver.orders is in other, but a view in db reads only tables there",
    ),
    "files": (
        lambda shop: shop.write("-- @materialized: view\nSELECT 1 AS a FROM {{ landing_zone('orders') }}"),
        "pipeline.sql:2: a view cannot read the files of a landing zone",
    ),
    "its own rows": (
        lambda shop: shop.write(BIG + "{% if table_exists %} AND 1 = 1 {% endif %}"),
        "pipeline.sql:3: table_exists: a view keeps no rows",
    ),
    "itself": (lambda shop: shop.write(BIG.replace("WHERE", "-- {{ this }}\nWHERE")), "this: a view keeps"),
    "the time of the run": (
        lambda shop: shop.write(BIG.replace("order_id,", "order_id, {{ run_started_at }} AS at,")),
        "run_started_at: a view is created once",
    ),
    "Delta": (
        lambda shop: shop.write(BIG.replace("view\n", "view\n-- @destination: lake\n")),
        "Delta tables in folders have no views",
    ),
    "a catalog": (
        lambda shop: shop.write(BIG.replace("view\n", "view\n-- @destination: spark\n")),
        "views in a Spark catalog are not built",
    ),
    "rows to merge": (
        lambda shop: shop.write(
            BIG.replace("view\n", "view\n-- @merge_strategy: upsert\n-- @unique_key: order_id\n")
        ),
        "merge_strategy",
    ),
    "a key": (
        lambda shop: shop.write(BIG.replace("view\n", "view\n-- @unique_key: order_id\n")),
        "unique_key",
    ),
    "rules": (lambda shop: shop.pipeline("gold.big", "quality: {min_rows: 1}"), "quality"),
    "Python": (
        lambda shop: shop.move("pipeline.sql", "pipeline.py", "# @materialized: view\nresult = 1"),
        "a view needs a pipeline.sql",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_view_cannot_have_is_refused_before_anything_runs(shop: ViewShop, what: str) -> None:
    (shop.root / "tallymark.yaml").write_text(
        "destinations:\n  db: {type: sqlite, path: shop.db}\n  other: {type: sqlite, path: other.db}\n"
        "  lake: {type: delta, path: warehouse}\n  spark: {type: delta, catalog: spark_catalog}\n"
        "defaults: {destination: db}\n"
    )
    spoil, said = REFUSED[what]
    spoil(shop)
    assert said in shop.problem()


def test_watermark_questions_are_answered_as_before_a_first_load(shop: ViewShop) -> None:
    shop.write(BIG + "{% if is_incremental() %} AND order_id > {{ watermark_value }} {% endif %}")
    shop.load("gold.big")
    assert shop.big() == [(2,), (3,)]


def test_a_view_of_a_view_is_made_after_it(shop: ViewShop) -> None:
    shop.write("-- @materialized: view\nSELECT count(*) AS n FROM {{ ref('gold.big') }}", "gold.counted")
    with shop.open() as project:
        project.run("gold.*")
    assert shop.rows("gold.counted", "n") == [(2,)]


def test_duckdb_and_its_schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    shop = ViewShop(tmp_path, None)  # type: ignore[arg-type]
    (tmp_path / "tallymark.yaml").write_text(
        "destinations: {db: {type: duckdb, path: shop.duckdb}}\ndefaults: {destination: db}\n"
    )
    shop.pipeline("silver.orders", ORDERS)
    shop.write(BIG)
    path = str(tmp_path / "shop.duckdb")
    with duckdb.connect(path) as database:
        database.execute("CREATE SCHEMA silver")
        database.execute("CREATE TABLE silver.orders (order_id BIGINT, amount DECIMAL(12,2))")
        database.execute("INSERT INTO silver.orders VALUES (1, 9.5), (2, 10.25)")
    assert shop.load("gold.big").outcome is Outcome.LOADED
    shop.write(BIG.replace("order_id,", "order_id AS number,"))
    assert shop.load("gold.big").outcome is Outcome.LOADED
    assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW
    with duckdb.connect(path) as database:
        assert database.execute("SELECT number FROM gold.big").fetchall() == [(2,)]


def test_postgres_and_what_depends_on_a_view(tmp_path: Path, postgres: Callable[[], str]) -> None:
    url = postgres()
    shop = ViewShop(tmp_path, None)  # type: ignore[arg-type]
    (tmp_path / "tallymark.yaml").write_text(
        f"destinations: {{db: {{type: postgres, url: '{url}'}}}}\ndefaults: {{destination: db}}\n"
    )
    shop.pipeline("silver.orders", f"table: orders\n{ORDERS}")
    shop.write(BIG.replace("view\n", "view\n-- @table: big\n"))
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("CREATE TABLE orders (order_id bigint, status text, amount numeric(12,2))")
        database.execute("INSERT INTO orders VALUES (1, 'new', 9.5), (2, 'paid', 10.25)")
        assert shop.load("gold.big").outcome is Outcome.LOADED
        database.execute("CREATE VIEW reader AS SELECT amount FROM big")
        shop.write(BIG.replace("view\n", "view\n-- @table: big\n").replace(", amount FROM", " FROM"))
        failure = shop.run("gold.big").failures[0]
        assert "gold/big/pipeline.sql" in failure.message and "reader" in failure.message
        database.execute("DROP VIEW reader")
        assert shop.load("gold.big").outcome is Outcome.LOADED
        assert shop.load("gold.big").outcome is Outcome.NOTHING_NEW
        assert database.execute("SELECT * FROM big").fetchall() == [(2,)]


def test_a_transform_reads_a_view_and_a_table_gives_the_same(store: DatabaseShop) -> None:
    """With Spark: what the view says is what Spark says of the same query."""
    query = (
        "SELECT status, count(*) AS n, sum(order_id) AS ids, max(amount) AS most "
        "FROM {{ ref('silver.orders') }} WHERE status LIKE 'p%' GROUP BY status"
    )
    store.pipeline("silver.orders", ORDERS)
    for name, text in (
        ("gold.seen", f"-- @materialized: view\n{query}"),
        ("gold.kept", query),
        ("gold.read", "SELECT * FROM {{ ref('gold.seen') }}"),
    ):
        folder = store.root / "pipelines" / name.replace(".", "/")
        folder.mkdir(parents=True)
        (folder / "pipeline.sql").write_text(text)
    for number, rows in enumerate((["1,paid,1.50", "2,Paid,2.00", "3,new,9.00"], ["4,paid,30.25"])):
        content = "order_id,status,Amt\n" + "".join(f"{row}\n" for row in rows)
        (store.root / f"landing/orders/{number}.csv").write_text(content)
        with store.open() as project:
            report = project.run()
        assert report.ok, [p.failures for p in report.pipelines]
        seen, kept, read = (
            [(*row[:3], float(row[3])) for row in store.rows(f"gold.{name}", "*")]
            for name in ("seen", "kept", "read")
        )
        assert seen == kept == read
    with store.open() as project:
        outcomes = {p.pipeline: p.outcome for p in project.run().pipelines}
    assert set(outcomes.values()) == {Outcome.NOTHING_NEW}
