"""Rows in COPY's binary format, taken by a real server and read back as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from tallymark.destinations.postgres import copy as postgres_copy
from tallymark.destinations.postgres.copy import copy_rows
from tallymark.destinations.warehouse.engine import NativeColumn
from tallymark.errors import DestinationError

DAY = pa.array([date(2026, 11, 1), date(1999, 12, 31), date(1, 1, 1), date(9999, 12, 31), None])
MOMENT = [datetime(2026, 11, 1, 10, 15, 0, 5), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1, 1, 1)]
MONEY = [Decimal("1.50"), Decimal("-9999999999.99"), Decimal("0.01"), Decimal(0), Decimal("10000"), None]
TINY = [Decimal("0.000000000000001"), Decimal("-999.999999999999999"), Decimal("100.1"), None]
DOUBLES = [1.5, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, None]

CASES: dict[str, tuple[str, pa.Array]] = {
    "boolean": ("boolean", pa.array([True, False, None])),
    "tinyint": ("smallint", pa.array([1, -128, None], pa.int8())),
    "smallint": ("smallint", pa.array([-32768, 32767], pa.int16())),
    "int": ("integer", pa.array([-(2**31), 2**31 - 1, None], pa.int32())),
    "bigint": ("bigint", pa.array([-(2**63), 2**63 - 1, None], pa.int64())),
    "float": ("real", pa.array([1.5, None], pa.float32())),
    "double": ("double precision", pa.array(DOUBLES)),
    "text": ("text", pa.array(["", "größe 🙂", "tab\t line\n \\N", None])),
    "a long text": ("text", pa.array(["x", None], pa.large_string())),
    "varchar": ("character varying(9)", pa.array(["größe", None])),
    "bytes": ("bytea", pa.array([b"\x00\\", b"", None])),
    "json": ("jsonb", pa.array(['{"a": [1, null]}', "[]", None])),
    "date": ("date", DAY),
    "timestamp": ("timestamp with time zone", pa.array([*MOMENT, None], pa.timestamp("us", "UTC"))),
    "timestamp_ntz": ("timestamp without time zone", pa.array([*MOMENT, None], pa.timestamp("us"))),
    "decimal": ("numeric(12,2)", pa.array(MONEY, pa.decimal128(12, 2))),
    "decimal without digits after the point": (
        "numeric(18,0)",
        pa.array([Decimal(10**18 - 1)], pa.decimal128(18, 0)),
    ),
    "decimal with many": ("numeric(18,15)", pa.array(TINY, pa.decimal128(18, 15))),
    "decimal below one": ("numeric(4,4)", pa.array([Decimal("-0.0123"), None], pa.decimal128(4, 4))),
    "nothing": ("bigint", pa.array([None, None], pa.int64())),
}


@pytest.fixture
def connection(postgres: Callable[[], str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres()) as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def taken(connection: psycopg.Connection[Any], table: pa.Table, natives: list[str]) -> list[Any]:
    columns = [
        NativeColumn(name, native, "") for name, native in zip(table.column_names, natives, strict=True)
    ]
    assert postgres_copy.fits_binary(table.schema, columns)
    connection.execute(f"CREATE TEMP TABLE t ({', '.join(f'{c.name} {c.native}' for c in columns)})")
    copy_rows(connection, "COPY t FROM STDIN", columns, iter([table]))
    return connection.execute("SELECT * FROM t").fetchall()


@pytest.mark.parametrize("case", CASES)
def test_values_arrive_as_they_were(connection: psycopg.Connection[Any], case: str) -> None:
    """Between two others, and from the middle of a longer array, as slices of a batch are."""
    native, values = CASES[case]
    longer = pa.concat_arrays([values[-1:], values, values[:1]])[1:-1]
    table = pa.table({"a": range(len(values)), "v": longer, "z": ["end"] * len(values)})
    found = taken(connection, table, ["bigint", native, "text"])
    expected = values.to_pylist() if native != "jsonb" else [{"a": [1, None]}, [], None]
    assert [repr(v) for _, v, _ in found] == [repr(_as_read(v, values.type, native)) for v in expected]
    assert [(a, z) for a, _, z in found] == [(a, "end") for a in range(len(values))]


def _as_read(value: Any, kind: pa.DataType, native: str) -> Any:
    if native == "timestamp with time zone" and value is not None:
        return value.replace(tzinfo=UTC)
    if native.startswith("numeric") and value is not None:
        return value.quantize(Decimal(1).scaleb(-kind.scale))
    return value


def test_many_values_of_each_sign(connection: psycopg.Connection[Any]) -> None:
    """The server adds them up, so a wrong digit anywhere shows."""
    random = np.random.default_rng(7)
    cents = random.integers(-(10**17), 10**17, 20_000)
    moments = random.integers(-(10**15), 10**16, 20_000)
    table = pa.table(
        {
            "d": pa.array([Decimal(int(c)).scaleb(-6) for c in cents], pa.decimal128(18, 6)),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
        }
    )
    taken(connection, table, ["numeric(18,6)", "timestamp with time zone"])
    total = connection.execute(
        "SELECT SUM(d * 1000000), SUM(EXTRACT(EPOCH FROM at) * 1000000) FROM t"
    ).fetchone()
    assert total == (int(cents.sum(dtype=object)), int(moments.sum(dtype=object)))


@pytest.mark.parametrize(
    ("native", "values"),
    [
        ("timestamp with time zone", pa.array([-(2**63)], pa.timestamp("us", "UTC"))),
        ("timestamp without time zone", pa.array([-(2**63) + 946_684_800_000_000], pa.timestamp("us"))),
        ("date", pa.array([-(2**31)], pa.int32()).cast(pa.date32())),
        ("date", pa.array([-(2**31) + 10_957], pa.int32()).cast(pa.date32())),
    ],
)
def test_times_before_all_time_are_refused(
    connection: psycopg.Connection[Any], native: str, values: pa.Array
) -> None:
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
        taken(connection, pa.table({"v": values}), [native])


@pytest.mark.parametrize(
    ("native", "kind"),
    [
        ("uuid", pa.string()),
        ("numeric", pa.decimal128(12, 2)),
        ("numeric(38,2)", pa.decimal128(38, 2)),
        ("timestamp(0) with time zone", pa.timestamp("us", "UTC")),
        ("timestamp without time zone", pa.timestamp("ns")),
        ("integer", pa.int64()),  # of which too large a number would be cut off
        ("real", pa.float64()),
        ("bigint", pa.string()),
        ("text", pa.int64()),
        ("bytea", pa.string()),
    ],
)
def test_what_has_no_known_form_goes_as_text(native: str, kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    columns = [NativeColumn("k", "bigint", ""), NativeColumn("v", native, "")]
    assert not postgres_copy.fits_binary(schema, columns)


def test_nul_is_refused_by_the_name_of_its_column(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(DestinationError, match="column v: a text contains the character NUL"):
        taken(connection, pa.table({"v": ["a\0b"]}), ["text"])


def test_a_batch_without_rows(connection: psycopg.Connection[Any]) -> None:
    assert taken(connection, pa.table({"v": pa.array([], pa.int64())}), ["bigint"]) == []
