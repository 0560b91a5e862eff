"""The demo, end to end; its tables are read by delta-rs, which nobody here wrote."""

from __future__ import annotations

import hashlib
import io
import json
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from delta_rs import rows_of
from tallymark.spark import Sessions

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "examples" / "shop" / "demo.py"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, sessions: Sessions) -> tuple[Path, str]:
    """The folder that it built, and what it printed. It uses the Spark that runs in this process."""
    sessions.isolated()
    folder = tmp_path_factory.mktemp("demo") / "shop"
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(printed):
        patched.setattr(sys, "argv", [str(DEMO), str(folder)])
        patched.syspath_prepend(DEMO.parent)
        assert runpy.run_path(str(DEMO))["main"]() == 0
    return folder, printed.getvalue()


def rows(folder: Path, table: str, order_by: str) -> list[dict[str, Any]]:
    """Without provenance, which has a test of its own."""
    content = rows_of(folder / "warehouse" / table)
    plain = [{name: value for name, value in row.items() if not name.startswith("_")} for row in content]
    return sorted(plain, key=lambda row: str(row[order_by]))


def at(text: str) -> datetime:
    return datetime.strptime(text, "%m-%d %H:%M").replace(year=2026, tzinfo=UTC)


def order(
    number: int, customer: int, amount: str, status: str, placed: int, updated: str
) -> dict[str, object]:
    return {
        "order_id": number,
        "customer_id": customer,
        "amount": Decimal(amount),
        "status": status,
        "placed_on": date(2026, 11, placed),
        "updated_at": at(updated),
    }


def test_orders_are_merged_by_key_and_watermark(demo: tuple[Path, str]) -> None:
    assert rows(demo[0], "silver/orders", "order_id") == [
        order(1001, 501, "129.90", "paid", 1, "11-01 08:12"),
        order(1002, 502, "18.50", "paid", 1, "11-02 07:20"),
        order(1003, 503, "64.00", "new", 1, "11-02 07:45"),
        order(1004, 501, "7.25", "paid", 1, "11-01 16:31"),
        order(1005, 504, "240.00", "shipped", 1, "11-03 06:30"),
        order(1006, 502, "55.10", "cancelled", 2, "11-03 08:44"),
        order(1007, 505, "310.49", "paid", 2, "11-02 11:17"),
        order(1009, 503, "21.00", "new", 3, "11-03 10:10"),
        order(1010, 501, "89.95", "paid", 3, "11-03 13:26"),
    ]


def customer(number: int, name: str, email: str, street: str, city: str, code: str) -> dict[str, object]:
    address = {"street": street, "city": city, "zip": code}
    return {"customer_id": number, "name": name, "email": email, "address": address}


def test_customers_keep_their_nested_address(demo: tuple[Path, str]) -> None:
    found = rows(demo[0], "silver/customers", "customer_id")
    assert found == [
        customer(501, "Ada Moreau", "ada@example.org", "Rue Verte 4", "Lyon", "69001"),
        customer(502, "Ben Okafor", "ben@example.org", "Quay Street 3", "Hull", "HU1 1AA"),
        customer(503, "Chloé Weiß", "c.weiss@example.org", "Am Markt 1", "Bonn", "53111"),
        customer(504, "Dario Ricci", "dario@example.org", "Via Roma 88", "Torino", "10121"),
        customer(505, "Emi Sato", "emi@example.org", "Dorpsstraat 7", "Delft", "2611"),
    ]


def test_products_are_those_of_the_last_day(demo: tuple[Path, str]) -> None:
    assert rows(demo[0], "silver/products", "sku") == [
        {"sku": "BAG-2", "title": "Tote bag", "price": Decimal("19.50")},
        {"sku": "LAMP-1", "title": "Desk lamp", "price": Decimal("39.90")},
        {"sku": "MUG-3", "title": "Mug, blue", "price": Decimal("8.75")},
    ]


def test_events_are_all_there_twins_too(demo: tuple[Path, str]) -> None:
    found = rows(demo[0], "bronze/events", "at")
    assert [(f"{row['at']:%d %H:%M:%S}", row["customer_id"], row["page"]) for row in found] == [
        ("01 08:10:05", 501, "/lamp"),
        ("01 09:38:41", 502, "/mug"),
        ("01 09:39:02", None, "/mug"),
        ("02 09:00:00", 502, "/bag"),
        ("02 11:15:30", 505, "/pen"),
        ("03 10:08:12", 503, "/bag"),
        ("03 10:08:12", 503, "/bag"),
        ("03 13:25:59", 501, "/lamp"),
    ]


def test_customers_are_kept_with_their_history(demo: tuple[Path, str]) -> None:
    found = rows(demo[0], "gold/customer_history", "valid_from")
    versions = sorted((row["customer_id"], not row["is_current"], row["email"], row["city"]) for row in found)
    assert [(number, email, city) for number, closed, email, city in versions if not closed] == [
        (501, "ada@example.org", "Lyon"),
        (502, "ben@example.org", "Hull"),
        (503, "c.weiss@example.org", "Bonn"),
        (504, "dario@example.org", "Torino"),
        (505, "emi@example.org", "Delft"),
    ]
    assert [(number, email, city) for number, closed, email, city in versions if closed] == [
        (502, "ben@example.org", "Leeds"),
        (503, "chloe@example.org", "Bonn"),
    ]


def test_facts_go_on_from_the_watermark(demo: tuple[Path, str]) -> None:
    found = rows(demo[0], "gold/order_facts", "order_id")
    assert [(row["order_id"], row["city"], row["status"]) for row in found] == [
        (1001, "Lyon", "paid"),
        (1002, "Hull", "paid"),
        (1003, "Bonn", "new"),
        (1004, "Lyon", "paid"),
        (1005, "Torino", "shipped"),
        (1006, "Hull", "cancelled"),
        (1007, "Delft", "paid"),
        (1009, "Bonn", "new"),
        (1010, "Lyon", "paid"),
    ]
    history = DeltaTable(str(demo[0] / "warehouse/gold/order_facts")).history()
    markers = [json.loads(commit["userMetadata"]) for commit in reversed(history)]
    assert [marker["counts"]["total"] for marker in markers] == [4, 4, 4], "not all orders each time"


def test_sales_are_those_of_each_day(demo: tuple[Path, str]) -> None:
    assert rows(demo[0], "gold/daily_sales", "placed_on") == [
        {"placed_on": date(2026, 11, 1), "orders": 5, "amount": Decimal("459.65")},
        {"placed_on": date(2026, 11, 2), "orders": 1, "amount": Decimal("310.49")},
        {"placed_on": date(2026, 11, 3), "orders": 2, "amount": Decimal("110.95")},
    ]


def test_every_row_says_which_file_last_changed_it(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    content = rows_of(folder / "warehouse" / "silver" / "orders")
    days = {row["order_id"]: Path(row["_source_file"]).stem for row in content}
    assert days == {
        1001: "2026-11-01",  # came again on the second day, unchanged
        1002: "2026-11-02",
        1003: "2026-11-02",
        1004: "2026-11-01",
        1005: "2026-11-03",
        1006: "2026-11-03",
        1007: "2026-11-02",
        1009: "2026-11-03",
        1010: "2026-11-03",
    }
    for row in content:
        name = Path(row["_source_file"]).name
        original = (folder / "landing" / "orders" / name).read_bytes()
        assert row["_source_file_hash"] == hashlib.sha256(original).hexdigest()


def test_it_tells_a_newcomer_what_happened(demo: tuple[Path, str]) -> None:
    _, printed = demo
    assert "0 rows, 0 new commits" in printed
    assert "2026-11-02_resent.csv has the same content as" in printed
    assert "status=new → paid" in printed
    for bad in ("64,00", "gift"):
        assert bad in printed.split("The bad rows")[1]
    assert "Where to look next" in printed
    assert "\x1b" not in printed


def test_it_removes_no_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").touch()
    done = subprocess.run(
        [sys.executable, str(DEMO), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "not the demo's" in done.stderr
    assert (tmp_path / "precious.txt").exists()
