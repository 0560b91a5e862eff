"""Rows and settings that the conformance tests share."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from oracle import Row
from tallymark.model.settings import MergeSettings, Strategy

ORDERS = "id bigint, name string, amount decimal(12,2), at timestamp"
APPEND = MergeSettings(Strategy.APPEND_ONLY)
REFRESH = MergeSettings(Strategy.FULL_REFRESH)
UPSERT = MergeSettings(Strategy.UPSERT, unique_key=("id",))
INCREMENTAL = MergeSettings(Strategy.INCREMENTAL, unique_key=("id",), watermark_column="at")
PAIR = MergeSettings(Strategy.UPSERT, unique_key=("id", "name"))


def order(
    number: int | None, name: str | None = "a", amount: str | None = "1.00", day: int | None = 1
) -> Row:
    return {
        "id": number,
        "name": name,
        "amount": None if amount is None else Decimal(amount),
        "at": None if day is None else datetime(2026, 11, day),
    }


DAY1 = [order(1), order(2), order(3)]
