"""Debezium's envelopes as flat rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tallymark.errors import ConfigError, SourceError
from tallymark.model.plan import ROW_ORDER
from tallymark.model.settings import EnvelopeSettings
from tallymark.sources.debezium import NO_CHANGE, RECORD_ORDER, unwrap
from tallymark.sources.read_files import CORRUPT

BY_LSN = EnvelopeSettings("op", ("source.lsn",), ("id",))


def record(op: str | None, before: Any, after: Any, lsn: int = 1, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "db": "shop"}, **more}


def row(id: int | None, name: str | None = None) -> dict[str, Any]:
    return {"id": id, "name": name}


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def changes(landing: Any, envelope: EnvelopeSettings = BY_LSN, **source: Any) -> list[tuple[Any, ...]]:
    """Flat rows in order, without records that change nothing."""
    flat = unwrap(landing.read(**source), envelope)
    rows = flat.frame.where(f"NOT {NO_CHANGE}").orderBy(ROW_ORDER)
    return [tuple(r) for r in rows.select(*landing.quoted(flat)).collect()]


EVENTS = (
    record("r", None, row(1, "a"), 1),
    record("c", None, row(2, "b"), 2),
    record("u", row(1, "a"), row(1, "aa"), 3),
    record("u", row(2, "b"), row(7, "b"), 4),
    record("d", row(1, "aa"), None, 5),
    record("t", None, None, 6),
)
FLAT = [
    (1, "a", "r", 1),
    (2, "b", "c", 2),
    (1, "aa", "u", 3),
    (2, "b", "d", 4),
    (7, "b", "u", 4),
    (1, "aa", "d", 5),
    (None, None, "t", 6),
]


def test_events_become_rows(landing: Any) -> None:
    landing.write("a.ndjson", lines(*EVENTS))
    flat = unwrap(landing.read(), BY_LSN)
    assert [(c.name, c.type) for c in flat.columns] == [
        ("id", "bigint"),
        ("name", "string"),
        ("op", "string"),
        ("lsn", "bigint"),
    ]
    assert changes(landing) == FLAT


def test_events_under_payload(landing: Any) -> None:
    landing.write("a.json", json.dumps([{"schema": {"type": "struct"}, "payload": e} for e in EVENTS]))
    assert changes(landing) == FLAT


@pytest.mark.parametrize("spark_format", ["parquet", "avro", "orc"])
def test_events_in_files_with_types(landing: Any, spark: SparkSession, spark_format: str) -> None:
    image = "struct<id:bigint,name:string>"
    types = f"op string, before {image}, after {image}, source struct<lsn:bigint,db:string>"
    frame = spark.createDataFrame(list(EVENTS), types)
    landing.write_frame(f"a.{spark_format}", frame, spark_format)
    assert changes(landing, glob=f"*.{spark_format}") == FLAT


def test_messages_and_tombstones_are_left_out_and_keep_their_places(landing: Any) -> None:
    landing.write(
        "a.ndjson",
        lines({"payload": None}, {"payload": record("m", None, None)})
        + lines({"payload": {"ts_ms": 5}}, {"payload": record("c", None, row(1, "x"), 4)}, {"payload": None})
        + "{bad\n",
    )
    flat = unwrap(landing.read(), BY_LSN)
    first = flat.frame.agg({RECORD_ORDER: "min"}).first()
    assert first is not None
    rows = flat.frame.orderBy(ROW_ORDER).select(RECORD_ORDER, NO_CHANGE, "id", CORRUPT).collect()
    assert [(r[0] - first[0], *r[1:]) for r in rows] == [
        (0, True, None, None),
        (1, True, None, None),
        (2, True, None, None),
        (3, False, 1, None),
        (4, True, None, None),
        (5, False, None, "{bad"),
    ]


def test_an_unknown_operation_stays_for_the_checks(landing: Any) -> None:
    landing.write("a.ndjson", lines(record("x", None, row(1, "a")), record(None, None, row(2, "b"))))
    assert changes(landing) == [(1, "a", "x", 1), (2, "b", None, 1)]


def test_images_of_different_shape(landing: Any) -> None:
    """Some databases send only the key before a change; JSON types follow what is there."""
    landing.write(
        "a.ndjson",
        lines(
            record("u", {"id": 1}, {"id": 2, "tags": {"a": 1}, "price": 1.5}, 1),
            record("d", {"id": 2, "tags": {"b": 2}, "price": 2}, None, 2),
            record("u", None, {"id": 3, "tags": None, "price": None}, 3),
        ),
    )
    flat = changes(landing)
    assert [(r[0], r[1], r[3]) for r in flat] == [
        (1, None, "d"),
        (2, 1.5, "u"),
        (2, 2.0, "d"),
        (3, None, "u"),
    ]


def test_nothing_but_truncations(landing: Any) -> None:
    landing.write("a.ndjson", lines(record("t", None, None, 6)))
    assert changes(landing) == [(None, "t", 6)]


def test_an_image_that_is_no_row_is_malformed(landing: Any) -> None:
    landing.write("a.ndjson", lines(record("u", "text", row(1, "a"))))
    [found] = unwrap(landing.read(), BY_LSN).frame.collect()
    assert '"before":"text"' in found[CORRUPT]


def test_names_match_whatever_their_case(landing: Any) -> None:
    by_time = EnvelopeSettings("kind", ("ts_ms",), ("id",))
    landing.write("a.ndjson", lines(record("u", {"ID": 1}, {"ID": 2}, ts_ms=9)))
    assert changes(landing, by_time) == [(1, "d", 9), (2, "u", 9)]


def test_the_order_may_be_a_column_of_the_row(landing: Any) -> None:
    landing.write("a.ndjson", lines(record("c", None, {"id": 1, "version": 3})))
    assert changes(landing, EnvelopeSettings("op", ("version",), ("id",))) == [(1, 3, "c")]


@pytest.mark.parametrize(
    ("envelope", "after", "problem"),
    [
        (EnvelopeSettings("op", ("source.lsn",), ("id",)), {"id": 1, "LSN": 2}, "a column lsn of their own"),
        (EnvelopeSettings("op", (), ("id",)), {"id": 1, "op": 2}, "a column op of their own"),
        (EnvelopeSettings("op", ("source.lsm",), ("id",)), {"id": 1}, "did you mean source.lsn"),
        (EnvelopeSettings("op", ("scn",), ("id",)), {"id": 1}, "it has after, before, op, source, source.db"),
    ],
)
def test_names_that_cannot_be(landing: Any, envelope: EnvelopeSettings, after: Any, problem: str) -> None:
    landing.write("a.ndjson", lines(record("c", None, after)))
    with pytest.raises(ConfigError) as caught:
        unwrap(landing.read(), envelope)
    assert problem in str(caught.value)


def test_flat_files_are_no_envelopes(landing: Any) -> None:
    landing.write("a.csv", "id,op\n1,c\n")
    with pytest.raises(SourceError, match="no Debezium envelopes"):
        unwrap(landing.read(), BY_LSN)


def test_an_empty_file(landing: Any) -> None:
    landing.write("a.ndjson", "")
    assert unwrap(landing.read(), BY_LSN).columns == ()
