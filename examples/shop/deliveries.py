"""What the shop's systems deliver on three days, with the mistakes that such systems make."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")

ORDERS = {
    # Order 1003 has a decimal comma: no decimal(12,2), so a bad row.
    "2026-11-01": """\
OrderNo,Customer,Amt,status,Placed,updated_at
1001,501,129.90,paid,01/11/2026,2026-11-01T08:12:00Z
1002,502,18.50,new,01/11/2026,2026-11-01T09:40:00Z
1003,503,"64,00",new,01/11/2026,2026-11-01T10:05:00Z
1004,501,7.25,paid,01/11/2026,2026-11-01T16:31:00Z
1005,504,240.00,new,01/11/2026,2026-11-01T19:58:00Z
""",
    # 1001 comes again unchanged, 1002 is paid, 1003 is repaired. One row has no number, and 1008 has
    # two fields too many.
    "2026-11-02": """\
OrderNo,Customer,Amt,status,Placed,updated_at
1001,501,129.90,paid,01/11/2026,2026-11-01T08:12:00Z
1002,502,18.50,paid,01/11/2026,2026-11-02T07:20:00Z
1003,503,64.00,new,01/11/2026,2026-11-02T07:45:00Z
1006,502,55.10,new,02/11/2026,2026-11-02T09:02:00Z
1007,505,310.49,paid,02/11/2026,2026-11-02T11:17:00Z
,502,33.10,new,02/11/2026,2026-11-02T11:55:00Z
1008,505,12.00,new,02/11/2026,2026-11-02T12:30:00Z,gift,wrap
""",
    # The second row of 1002 is late: older than what the table has since yesterday.
    "2026-11-03": """\
OrderNo,Customer,Amt,status,Placed,updated_at
1005,504,240.00,shipped,01/11/2026,2026-11-03T06:30:00Z
1002,502,18.50,new,01/11/2026,2026-11-01T09:40:00Z
1006,502,55.10,cancelled,02/11/2026,2026-11-03T08:44:00Z
1009,503,21.00,new,03/11/2026,2026-11-03T10:10:00Z
1010,501,89.95,paid,03/11/2026,2026-11-03T13:26:00Z
""",
}

ADA = (501, "Ada Moreau", "ada@example.org", "Rue Verte 4", "Lyon", "69001")
CUSTOMERS: dict[str, list[tuple[int | None, str, str, str, str, str]]] = {
    "2026-11-01": [
        ADA,
        (502, "Ben Okafor", "ben@example.org", "Mill Lane 12", "Leeds", "LS1 4AP"),
        (503, "Chloé Weiß", "chloe@example.org", "Am Markt 1", "Bonn", "53111"),
        (504, "Dario Ricci", "dario@example.org", "Via Roma 88", "Torino", "10121"),
    ],
    # 502 has moved, 505 is new, and one customer has no number.
    "2026-11-02": [
        (502, "Ben Okafor", "ben@example.org", "Quay Street 3", "Hull", "HU1 1AA"),
        (505, "Emi Sato", "emi@example.org", "Dorpsstraat 7", "Delft", "2611"),
        (None, "Nobody", "nobody@example.org", "-", "-", "-"),
    ],
    # 501 comes again unchanged, 503 has a new address for mail.
    "2026-11-03": [ADA, (503, "Chloé Weiß", "c.weiss@example.org", "Am Markt 1", "Bonn", "53111")],
}

LAMP = ("LAMP-1", "Desk lamp", "39.90")
PRODUCTS = {
    "2026-11-01": [LAMP, ("MUG-3", "Mug, blue", "9.25"), ("PEN-7", "Fountain pen", "64.00")],
    "2026-11-02": [
        LAMP,
        ("MUG-3", "Mug, blue", "8.75"),
        ("PEN-7", "Fountain pen", "64.00"),
        ("BAG-2", "Tote bag", "21.00"),
    ],
    # The pen is no longer sold.
    "2026-11-03": [LAMP, ("MUG-3", "Mug, blue", "8.75"), ("BAG-2", "Tote bag", "19.50")],
}

EVENTS = {
    "2026-11-01": [("08:10:05Z", "501", "/lamp"), ("09:38:41Z", "502", "/mug"), ("09:39:02Z", "", "/mug")],
    "2026-11-02": [("09:00:00Z", "502", "/bag"), ("11:15:30Z", "505", "/pen")],
    "2026-11-03": [("10:08:12Z", "503", "/bag"), ("10:08:12Z", "503", "/bag"), ("13:25:59Z", "501", "/lamp")],
}


def deliver(landing: Path, day: str) -> list[Path]:
    """Write the files of one day, as the shop's systems would."""
    writers: list[tuple[str, Callable[[Path, str], None]]] = [
        (f"orders/{day}.csv", _write_orders),
        (f"customers/{day}.ndjson", _write_customers),
        (f"products/{day}.parquet", _write_products),
        (f"events/{day}.csv.gz", _write_events),
    ]
    written = []
    for name, write in writers:
        path = landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, day)
        written.append(path)
    if day == DAYS[2]:  # yesterday's orders arrive a second time, under another name
        again = landing / "orders" / f"{DAYS[1]}_resent.csv"
        shutil.copyfile(landing / "orders" / f"{DAYS[1]}.csv", again)
        written.append(again)
    return written


def _write_orders(path: Path, day: str) -> None:
    path.write_text(ORDERS[day], encoding="utf-8")


def _write_customers(path: Path, day: str) -> None:
    lines = []
    for number, name, email, street, city, code in CUSTOMERS[day]:
        address = {"street": street, "city": city, "zip": code}
        row = {"customer_id": number, "name": name, "email": email, "address": address}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def _write_products(path: Path, day: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"sku": sku, "title": title, "price": Decimal(price)} for sku, title, price in PRODUCTS[day]]
    types = pa.schema([("sku", pa.string()), ("title", pa.string()), ("price", pa.decimal128(8, 2))])
    pq.write_table(pa.Table.from_pylist(rows, types), path)


def _write_events(path: Path, day: str) -> None:
    lines = ["at,customer_id,page", *(f"{day}T{at},{customer},{page}" for at, customer, page in EVENTS[day])]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))
