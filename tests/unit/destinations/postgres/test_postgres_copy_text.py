"""Rows as COPY reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

from tallymark.destinations.postgres.copy import copy_rows, text_rows
from tallymark.destinations.warehouse.engine import NativeColumn
from tallymark.errors import DestinationError

ODD = ["", None, "\\N", "a\tb", "a\nb", "a\rb", "back\\slash", "größe 🙂", " ", "'\""]
WRITTEN = ["", "\\N", "\\\\N", "a\\tb", "a\\nb", "a\\rb", "back\\\\slash", "größe 🙂", " ", "'\""]


def copied(**columns: pa.Array) -> bytes:
    batch = pa.record_batch(columns)
    return bytes(text_rows(batch, [NativeColumn(name, "", "") for name in columns]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_are_escaped_and_null_is_no_empty_text(kind: pa.DataType) -> None:
    assert copied(v=pa.array(ODD, kind)).decode() == "".join(f"{text}\n" for text in WRITTEN)


def test_values_stand_in_the_order_of_the_columns() -> None:
    found = copied(
        k=pa.array([1, None]),
        price=pa.array([Decimal("1.50"), None]),
        at=pa.array([datetime(2026, 11, 1, 10, 15, 0, 5, UTC), None], pa.timestamp("us", "UTC")),
        wall=pa.array([datetime(2026, 11, 1, 10, 15), None], pa.timestamp("us")),
        flag=pa.array([True, None]),
        number=pa.array([float("nan"), float("-inf")]),
        some=pa.array([b"\x00\\", None]),
    )
    first, second, rest = found.split(b"\n")
    assert first.split(b"\t") == [
        b"1",
        b"1.50",
        b"2026-11-01 10:15:00.000005+00:00",
        b"2026-11-01 10:15:00.000000",
        b"true",
        b"nan",
        b"\\\\x005c",
    ]
    assert second.split(b"\t") == [b"\\N"] * 5 + [b"-inf", b"\\N"]
    assert rest == b""


def test_a_part_of_a_batch_is_no_more_than_that() -> None:
    batch = pa.record_batch({"v": ["one", "two", "three", "four"]})
    column = [NativeColumn("v", "text", "string")]
    assert bytes(text_rows(batch.slice(1, 2), column)) == b"two\nthree\n"
    assert bytes(text_rows(batch.slice(4), column)) == b""


def test_nul_is_refused_by_the_name_of_its_column() -> None:
    with pytest.raises(DestinationError, match="column v: a text contains the character NUL"):
        copied(k=pa.array([1]), v=pa.array(["a\0b"]))


def test_no_more_than_a_part_waits_to_be_sent(postgres: Callable[[], str]) -> None:
    """A driver that keeps what the server has not taken yet would keep the whole batch."""
    column = [NativeColumn("v", "text", "string")]
    with psycopg.connect(postgres()) as connection:
        connection.execute("CREATE TEMP TABLE t (v text)")
        left: list[int] = []

        def tables() -> Iterator[pa.Table]:
            for _ in range(3):
                yield pa.table({"v": ["x" * 1000] * 10_000})
                left.append(connection.pgconn.flush())

        copy_rows(connection, "COPY t FROM STDIN", column, tables())
        assert left == [0, 0, 0]
        assert connection.execute("SELECT COUNT(*), SUM(LENGTH(v)) FROM t").fetchone() == (30_000, 30_000_000)
