"""Names and errors of Spark SQL, shared by the destinations that Spark itself writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tallymark.model.sql_text import quoted
from tallymark.model.table import Column
from tallymark.spark.sessions import is_embedded, shares_files

__all__ = [
    "beside_data",
    "condition",
    "delta_table",
    "exact_timestamp",
    "is_embedded",
    "literal_path",
    "local_frame",
    "lost_connection",
    "no_rows",
    "planned_for",
    "quoted",
    "quoted_list",
    "reason",
    "shares_files",
]

_ADAPTIVE = "spark.sql.adaptive.enabled"
_FEW_ROWS = 200_000
_FEW_BYTES = 16 << 20


def quoted_list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def local_frame(spark: SparkSession, rows: list[tuple[object, ...]], schema: str) -> DataFrame:
    """A few rows known here. Through Arrow they become part of the plan; as Python objects they would each
    time start Python workers to be read."""
    fields = cast(StructType, StructType.fromDDL(schema))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrow = to_arrow_schema(fields)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), fields)


def no_rows(spark: SparkSession, columns: Iterable[Column]) -> DataFrame:
    nothing = (f"CAST(NULL AS {column.type}) AS {quoted(column.name)}" for column in columns)
    return spark.sql(f"SELECT {', '.join(nothing)} WHERE false")


@contextmanager
def planned_for(
    spark: SparkSession, *, rows: int | None = None, size_bytes: int | None = None
) -> Iterator[None]:
    """Adaptive execution runs each step of a query as a job of its own, to learn sizes. For a batch that is
    known to be small, the jobs cost more than any size could save."""
    few = (rows is not None and rows <= _FEW_ROWS) or (size_bytes is not None and size_bytes <= _FEW_BYTES)
    with set_for_now(spark, {_ADAPTIVE: "false"} if few else {}):
        yield


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
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


def delta_table(spark: SparkSession, path: str | Path) -> DataFrame | None:
    """None when it is not made yet. A Path is one of this machine, where that shows without Spark."""
    if isinstance(path, Path) and not (path / "_delta_log").is_dir():
        return None
    try:
        stored = spark.read.format("delta").load(str(path))
        stored.columns  # noqa: B018 (Spark Connect looks at the table only here)
    except AnalysisException:
        return None
    return stored


def literal_path(path: str | Path) -> str:
    """Spark's readers of files take a glob."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def beside_data(location: str | Path, name: str) -> str | Path:
    """A table of Tallymark's own in the folder of a Delta table: it goes where that goes."""
    inside = f"_tallymark/{name}"
    return location / inside if isinstance(location, Path) else f"{location.rstrip('/')}/{inside}"


def condition(error: BaseException) -> str:
    """Spark's name of the error, such as TABLE_OR_VIEW_NOT_FOUND; empty if it has none."""
    if isinstance(error, PySparkException):
        named = error.getCondition()
        if named:
            return str(named)
    match = re.search(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]", str(error))
    return match[1] if match else ""


def reason(error: BaseException) -> str:
    """One line that says what went wrong: the innermost cause, else the first line."""
    lines = str(error).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    text = causes[-1] if causes else next((line for line in lines if line.strip()), type(error).__name__)
    return re.sub(r"^(?:[a-z]+\.)+([A-Z]\w+): ", r"\1: ", text.strip())[:500]


def lost_connection(error: BaseException) -> bool:
    """Whether the answer got lost, so that the statement may have succeeded."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    kind = f"{type(error).__module__}.{type(error).__name__}"
    return kind.startswith("grpc.") or "Py4JNetworkError" in kind or "UNAVAILABLE" in str(error)[:300]


def exact_timestamp(moment: datetime) -> str:
    """A literal that means the same in every session time zone, to the microsecond."""
    return f"TIMESTAMP '{moment.astimezone(UTC).isoformat(timespec='microseconds')}'"
