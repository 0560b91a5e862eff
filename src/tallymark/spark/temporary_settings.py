"""Settings of a session that hold for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADAPTIVE = "spark.sql.adaptive.enabled"
_FEW_ROWS = 200_000
_FEW_BYTES = 16 << 20


@contextmanager
def planned_for(
    spark: SparkSession, *, rows: int | None = None, size_bytes: int | None = None
) -> Iterator[None]:
    """Adaptive execution runs each step of a query as a job of its own, to learn sizes. For a batch that is
    known to be small, the jobs cost more than any size could save."""
    few = (rows is not None and rows <= _FEW_ROWS) or (size_bytes is not None and size_bytes <= _FEW_BYTES)
    with temporary_settings(spark, {_ADAPTIVE: "false"} if few else {}):
        yield


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        with suppress(Exception):  # the session may be gone, and its settings with it
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
