"""Transforms that are asked again: for everything, or for a window; and looked at without a load."""

from __future__ import annotations

from typing import Any

import pytest

from tallymark.errors import ConfigError, SourceError, Unsupported
from tallymark.ledger.ledger import Ledger
from tallymark.model.report import Outcome, PlanReport
from unit.flow.shop import ORDERS, DatabaseShop, Killed, csv, dies

TWICE = """-- @merge_strategy: {strategy}
-- @unique_key: order_id
-- @watermark_column: order_id
SELECT order_id, amount * 2 AS twice FROM {{{{ ref('silver.orders') }}}}
{{% if is_incremental() %}} WHERE order_id > {{{{ watermark_value }}}} {{% endif %}}
"""


@pytest.fixture
def shop(store: DatabaseShop) -> DatabaseShop:
    store.pipeline("silver.orders", ORDERS)
    store.drop("orders/1.csv", csv("1,new,1.00", "2,new,2.00", "3,new,3.00"))
    store.load()
    return store


def twice(shop: DatabaseShop, strategy: str = "incremental") -> None:
    folder = shop.root / "pipelines/gold/twice"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.sql").write_text(TWICE.format(strategy=strategy))


def corrected(shop: DatabaseShop) -> None:
    """An order that the watermark has passed changes, one ahead of it goes, and others come."""
    shop.drop("orders/2.csv", csv("1,new,10.00", "2,new,20.00", "4,new,40.00"))
    shop.load()


def planned(shop: DatabaseShop, **options: Any) -> PlanReport:
    with shop.open() as project:
        [report] = project.plan("gold.twice", **options)
    assert report.failure is None, report.failure
    return report


def rows(shop: DatabaseShop) -> list[tuple[Any, ...]]:
    return [(order, int(float(value))) for order, value in shop.rows("gold.twice", "order_id", "twice")]


def test_a_full_refresh_asks_for_everything_and_replaces_the_table(shop: DatabaseShop) -> None:
    twice(shop)
    shop.load("gold.twice")
    shop.sql("""INSERT INTO "gold.twice" VALUES (99, 0)""")
    corrected(shop)
    assert planned(shop, full_refresh=True).counts.deleted == 4
    report = shop.load("gold.twice", full_refresh=True)
    counts = report.counts
    assert (counts.inserted, counts.deleted, counts.total) == (4, 4, 4)
    assert rows(shop) == [(1, 20), (2, 40), (3, 6), (4, 80)]
    assert report.receipts[0].watermark is not None and report.receipts[0].watermark.text == "4"
    assert shop.load("gold.twice").outcome is Outcome.NOTHING_NEW, "the table is made of these inputs"
    assert shop.load("gold.twice", full_refresh=True).outcome is Outcome.LOADED, "asked for, so done"


def test_a_full_refresh_that_died_is_finished_by_an_ordinary_run(
    shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice(shop)
    shop.load("gold.twice")
    corrected(shop)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("tallymark.flow.load.load_batch", dies)
        shop.run("gold.twice", full_refresh=True)
    assert shop.load("gold.twice").counts.deleted == 3
    assert rows(shop) == [(1, 20), (2, 40), (3, 6), (4, 80)]
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        shop.run("gold.twice", full_refresh=True)
    assert len(shop.load("gold.twice").recovered) == 1
    assert rows(shop) == [(1, 20), (2, 40), (3, 6), (4, 80)]


def test_a_window_is_made_again_and_the_watermark_stays(shop: DatabaseShop) -> None:
    twice(shop)
    shop.load("gold.twice")
    corrected(shop)
    report = shop.load("gold.twice", since="1", until="2")
    assert report.counts.total == 1
    assert rows(shop) == [(1, 20), (2, 4), (3, 6)]
    again = shop.load("gold.twice", since="1", until="2")
    assert again.outcome is Outcome.NOTHING_NEW, "the same window of the same inputs"
    ahead = shop.load("gold.twice", since="4")
    assert ahead.receipts[0].watermark is not None and ahead.receipts[0].watermark.text == "3"
    later = shop.load("gold.twice")
    assert later.counts.total == 1, "an ordinary run goes on from the watermark, as though nothing had been"
    assert rows(shop) == [(1, 20), (2, 4), (3, 6), (4, 80)]
    assert shop.load("gold.twice").outcome is Outcome.NOTHING_NEW


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("monday", None, "--since monday: not a valid bigint; order_id is a bigint column"),
        ("2", "2", "is not before --until 2"),
    ],
)
def test_a_wrong_window_fails_and_leaves_nothing_behind(
    shop: DatabaseShop, since: str, until: str | None, message: str
) -> None:
    twice(shop)
    report = shop.run("gold.twice", since=since, until=until)
    assert message in report.failures[0].message
    assert shop.load("gold.twice").outcome is Outcome.LOADED


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("append_only", {"since": "1"}, "would add the rows of the window a second time"),
        ("full_refresh", {"until": "1"}, "would replace the whole table"),
        ("full_merge", {"until": "1"}, "would delete every row outside"),
        ("update", {"full_refresh": True}, "would leave an empty table"),
        ("upsert", {"full_refresh": True, "since": "1"}, "choose one"),
    ],
)
def test_what_cannot_be_asked_again_is_refused_before_anything_runs(
    shop: DatabaseShop, strategy: str, options: dict[str, Any], message: str
) -> None:
    twice(shop, strategy)
    with pytest.raises((ConfigError, Unsupported), match=message):
        shop.run("gold.twice", **options)
    assert not shop.has("gold.twice")


def test_pipelines_that_load_files_cannot_be_asked_again(shop: DatabaseShop) -> None:
    with pytest.raises(Unsupported, match=r"silver\.orders loads files"):
        shop.run("silver.orders", full_refresh=True)


def test_a_preview_shows_query_schema_rows_and_plan_and_writes_nothing(shop: DatabaseShop) -> None:
    twice(shop)
    with shop.open() as project:
        seen = project.preview("gold.twice", rows=2)
    assert "SELECT order_id, amount * 2 AS twice FROM" in seen.query and "{{" not in seen.query
    assert [column.name for column in seen.schema] == ["order_id", "twice"]
    assert len(seen.rows) == 2 and "Physical Plan" in seen.spark_plan
    assert [read.name for read in seen.inputs] == ["ref silver.orders"]
    assert not shop.has("gold.twice")
    assert shop.load("gold.twice").outcome is Outcome.LOADED, "nothing was recorded either"


def test_a_preview_of_files_shows_what_waits_else_what_was_loaded(shop: DatabaseShop) -> None:
    with shop.open() as project:
        assert len(project.preview("silver.orders").rows) == 3
    shop.drop("orders/2.csv", csv("7,new,1.00"))
    with shop.open() as project:
        seen = project.preview("silver.orders")
    assert [int(str(row["order_id"])) for row in seen.rows] == [7]


def test_a_preview_needs_the_inputs(store: DatabaseShop) -> None:
    store.pipeline("silver.orders", ORDERS)
    twice(store)
    with store.open() as project, pytest.raises(SourceError, match="its table does not exist yet"):
        project.preview("gold.twice")


NOTES = """-- @merge_strategy: append_only
-- @archive_landing_zones: true
SELECT CAST(id AS BIGINT) AS id, note FROM {{ landing_zone('notes') }}
"""


def notes(shop: DatabaseShop, name: str = "notes") -> None:
    folder = shop.root / "pipelines/silver" / name
    folder.mkdir(parents=True)
    (folder / "pipeline.sql").write_text(NOTES)


def places(shop: DatabaseShop) -> list[str]:
    top = shop.root / "landing/notes"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def test_files_of_a_landing_zone_are_read_once_and_moved(
    shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes(shop)
    shop.drop("notes/1.csv", "id,note\n1,one\n")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Ledger, "commit_batch", dies)
        shop.run("silver.notes")
    assert places(shop) == ["1.csv"], "nobody knows yet that it is committed"
    shop.drop("notes/2.csv", "id,note\n2,two\n")
    report = shop.load("silver.notes")
    assert (len(report.recovered), report.counts.inserted) == (1, 1)
    assert places(shop) == ["_archive/1.csv", "_archive/2.csv"]
    assert shop.rows("silver.notes", "id") == [(1,), (2,)]
    assert shop.load("silver.notes").outcome is Outcome.NOTHING_NEW
    shop.drop("notes/again.csv", "id,note\n1,one\n")
    shop.drop("notes/3.csv", "id,note\n3,three\n")
    assert shop.load("silver.notes").counts.inserted == 1
    assert shop.rows("silver.notes", "id") == [(1,), (2,), (3,)]
    assert places(shop) == ["_archive/1.csv", "_archive/2.csv", "_archive/3.csv", "again.csv"]


def test_a_landing_zone_that_two_transforms_read_is_not_archived_by_one(shop: DatabaseShop) -> None:
    notes(shop)
    notes(shop, "others")
    with pytest.raises(Unsupported, match=r"away from silver\.(others|notes)"):
        shop.run("silver.notes")
