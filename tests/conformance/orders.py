"""Rows and settings that the conformance tests share."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from oracle import Row
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Scd2Settings, Strategy

ORDERS = "id bigint, name string, amount decimal(12,2), at timestamp"
APPEND = MergeSettings(Strategy.APPEND_ONLY)
REFRESH = MergeSettings(Strategy.FULL_REFRESH)
UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("id",))
INCREMENTAL = MergeSettings(Strategy.INCREMENTAL, unique_key=("id",), watermark_column="at")
PAIR = MergeSettings(Strategy.UPSERT, unique_key=("id", "name"))
INSERT = MergeSettings(Strategy.INSERT, unique_key=("id",))
UPDATE = MergeSettings(Strategy.UPDATE, unique_key=("id",))
DEDUPLICATE = MergeSettings(Strategy.DEDUPLICATE, unique_key=("id",), dedup_order_by=("at",))
FULL_MERGE = MergeSettings(Strategy.FULL_MERGE, unique_key=("id",))
DELETE_INSERT = MergeSettings(Strategy.DELETE_INSERT, unique_key=("id", "name"))
SNAPSHOT = MergeSettings(Strategy.SNAPSHOT, partition_column="name")
BY_TIME = MergeSettings(
    Strategy.SCD2, unique_key=("id",), scd2=Scd2Settings(effective_from="at", current_flag="is_current")
)
CLOSING = MergeSettings(Strategy.SCD2, unique_key=("id",), scd2=Scd2Settings(close_absent=True))
CODES = {
    Operation.INSERT: ("i",),
    Operation.UPDATE: ("u",),
    Operation.DELETE: ("d",),
    Operation.TRUNCATE: ("t",),
}
CDC = MergeSettings(Strategy.CDC, unique_key=("id",), cdc=CdcSettings("op", ("at",), CODES))
UNORDERED = MergeSettings(Strategy.CDC, unique_key=("id",), cdc=CdcSettings("op"))
PARTIAL = MergeSettings(Strategy.CDC, unique_key=("id",), cdc=CdcSettings("op", ("at",), partial=True))
FEED = "op string, " + ORDERS


def order(
    number: int | None, name: str | None = "a", amount: str | None = "1.00", day: int | None = 1
) -> Row:
    return {
        "id": number,
        "name": name,
        "amount": None if amount is None else Decimal(amount),
        "at": None if day is None else datetime(2026, 11, day),
    }


def event(op: str, *values: object, **named: object) -> Row:
    return {"op": op, **order(*values, **named)}  # type: ignore[arg-type]


DAY1 = [order(1), order(2), order(3)]
