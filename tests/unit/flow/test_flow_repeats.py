"""Files that bring a content again: what repeats the latest is left out, a state that returns is applied."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tallymark.model.report import Outcome
from unit.flow.shop import DatabaseShop

STATES = """
source: {{files: landing/*.csv{source}}}
columns: [{{name: id, type: bigint}}, {{name: day, type: string}}, {{name: name, type: string}}]
merge_strategy: {strategy}
{more}
guards: {{max_delete_fraction: 1}}
"""
KEY = "unique_key: [id]"
MORE = {
    "full_refresh": "",
    "full_merge": KEY,
    "snapshot": "partition_column: day",
    "scd2": f"{KEY}\nscd_close_absent: true",
    "upsert": KEY,
}
A = "id,day,name\n1,mon,a\n2,mon,a\n"
B = "id,day,name\n1,mon,b\n"
STATE_A, STATE_B = [(1, "a"), (2, "a")], [(1, "b")]


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> DatabaseShop:
    return DatabaseShop.at(tmp_path, spark)


def declare(shop: DatabaseShop, strategy: str, *more: str, source: str = "") -> None:
    text = STATES.format(strategy=strategy, more="\n".join([MORE[strategy], *more]), source=source)
    shop.pipeline("silver.orders", text)


def now(shop: DatabaseShop) -> list[tuple[object, ...]]:
    is_history = "valid_to" in [row[1] for row in shop.sql('PRAGMA table_info("silver.orders")')]
    current = " WHERE valid_to IS NULL" if is_history else ""
    return sorted(shop.sql(f'SELECT id, name FROM "silver.orders"{current}'))


@pytest.mark.parametrize("strategy", ["full_refresh", "full_merge", "snapshot", "scd2"])
def test_a_state_that_returns_is_applied(shop: DatabaseShop, strategy: str) -> None:
    declare(shop, strategy)
    shop.drop("1.csv", A)
    shop.load()
    shop.drop("2.csv", B)
    shop.load()
    shop.drop("3.csv", A)
    planned = shop.plan("silver.orders")
    report = shop.load()
    assert (now(shop), planned.counts) == (STATE_A, report.counts)
    assert planned.files == (str(shop.root / "landing/3.csv"),)
    [warning] = planned.warnings
    assert "3.csv: contents that were delivered before, as " in warning
    assert report.warnings == (warning,)
    [returned] = report.discovery.returned
    assert (Path(returned.path).name, Path(returned.repeats).name) == ("3.csv", "1.csv")
    assert report.discovery.new == 1
    shop.drop("4.csv", A)  # of the latest: a repeat
    assert shop.load().outcome is Outcome.NOTHING_NEW
    shop.lose_ledger()
    again = shop.load()
    assert (again.outcome, len(again.recovered), now(shop)) == (Outcome.NOTHING_NEW, 3, STATE_A)


def test_rows_of_a_state_that_returned_name_their_file_and_its_bytes(shop: DatabaseShop) -> None:
    declare(shop, "full_refresh")
    for number, content in enumerate((A, B, A), start=1):
        shop.drop(f"{number}.csv", content)
    assert len(shop.load().receipts) == 3
    found = set(shop.sql('SELECT _source_file, _source_file_hash FROM "silver.orders"'))
    assert found == {(str(shop.root / "landing/3.csv"), sha256(A.encode()).hexdigest())}


def test_a_file_that_is_overwritten_with_what_it_held_before(shop: DatabaseShop) -> None:
    declare(shop, "full_merge")
    for content, state in ((A, STATE_A), (B, STATE_B), (A, STATE_A), (B, STATE_B)):
        shop.drop("state.csv", content)
        shop.load()
        assert now(shop) == state
    assert shop.load().outcome is Outcome.NOTHING_NEW


def test_changes_that_are_delivered_again_are_left_out_with_a_warning(shop: DatabaseShop) -> None:
    declare(shop, "upsert")
    for number, content in enumerate((A, B), start=1):
        shop.drop(f"{number}.csv", content)
        shop.load()
    shop.drop("3.csv", A)
    planned = shop.plan("silver.orders")
    report = shop.load()
    assert (report.outcome, now(shop)) == (Outcome.NOTHING_NEW, [(1, "b"), (2, "a")])
    assert "are not loaded again (upsert)" in report.warnings[0]
    assert planned.warnings == report.warnings
    assert shop.load().warnings == ()


def test_changes_that_are_delivered_again_are_applied_where_this_is_asked(shop: DatabaseShop) -> None:
    declare(shop, "upsert", "repeated_content: apply")
    for number, content in enumerate((A, B, A), start=1):
        shop.drop(f"{number}.csv", content)
    shop.load()
    assert now(shop) == STATE_A


def test_a_repeat_can_fail(shop: DatabaseShop) -> None:
    declare(shop, "full_refresh", "repeated_content: fail")
    for number, content in enumerate((A, B), start=1):
        shop.drop(f"{number}.csv", content)
        shop.load()
    shop.drop("3.csv", A)
    for _ in range(2):
        report = shop.run()
        assert report.outcome is Outcome.FAILED
        assert "1 files are refused by repeated_content: fail, first " in report.failures[0].message
        assert now(shop) == STATE_B
    with shop.open() as project:
        project.requeue("silver.orders")
    shop.load()
    assert now(shop) == STATE_A


def test_a_file_that_was_renamed_does_not_return(shop: DatabaseShop) -> None:
    declare(shop, "full_refresh")
    first = shop.drop("1.csv", A)
    shop.drop("2.csv", B)
    shop.load()
    first.rename(shop.root / "landing/3.csv")
    assert (shop.load().outcome, now(shop)) == (Outcome.NOTHING_NEW, STATE_B)


def test_by_name_an_old_file_under_an_earlier_name_is_a_repeat(shop: DatabaseShop) -> None:
    declare(shop, "full_refresh")
    for number, content in ((1, A), (2, B)):
        shop.drop(f"{number}.csv", content)
    shop.load()
    shop.drop("1b.csv", A)
    assert (shop.load().outcome, now(shop)) == (Outcome.NOTHING_NEW, STATE_B)


@pytest.mark.parametrize(("order", "state"), [("name", STATE_B), ("modified", STATE_A)])
def test_a_file_that_is_written_again_unchanged(shop: DatabaseShop, order: str, state: object) -> None:
    """By time it comes last, by name it keeps its place."""
    declare(shop, "full_refresh", source=f", order: {order}")
    first = shop.drop("1.csv", A)
    os.utime(first, (1_000_000_000, 1_000_000_000))
    shop.drop("2.csv", B)
    shop.load()
    os.utime(first)
    shop.load()
    assert now(shop) == state
    assert shop.load().outcome is Outcome.NOTHING_NEW
