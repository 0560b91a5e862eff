"""The rows of a transform: pipeline.sql rendered and asked of Spark, or pipeline.py called."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, assert_never

from pyspark.sql import DataFrame, SparkSession

from tallymark.config.query_files import Language
from tallymark.errors import ConfigError, SourceError, TallymarkError
from tallymark.flow.job import Job, Query
from tallymark.flow.transform.backfill import rows_in
from tallymark.flow.transform.inputs import Inputs
from tallymark.model.batch import Pin, WatermarkValue
from tallymark.model.section import Scalar
from tallymark.model.settings import Strategy
from tallymark.model.table import PROVENANCE_COLUMNS
from tallymark.templates import Context, Template, TypedValue, render

_NO_DEFAULT = object()
_PLACE = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")
_THIS = re.compile(r"\bthis\b")
_THIS_VIEW = "tm_this"


@dataclass(frozen=True)
class Result:
    frame: DataFrame
    sql: str = ""  # as it was asked; empty for pipeline.py


def transformed(job: Job, query: Query, pin: Pin, as_of: datetime, opened: ExitStack) -> Result:
    """`opened` is closed after the commit, because Spark may read inputs until then."""
    inputs = Inputs(job, query, pin, opened)
    match query.transform.language:
        case Language.SQL:
            result = _asked(inputs, query, as_of)
        case Language.PYTHON:
            result = Result(_called(inputs, query, as_of))
        case _:
            assert_never(query.transform.language)
    frame = result.frame
    if pin.window is not None:
        frame = rows_in(frame, pin.window, query.transform.file)
    # `SELECT *` brings those of the inputs along; they say nothing about the rows of this table.
    return Result(frame.drop(*(column.name for column in PROVENANCE_COLUMNS)), result.sql)


def context_of(inputs: Inputs, query: Query, as_of: datetime) -> Context:
    job, transform = inputs.job, query.transform
    asks_this = _THIS.search(transform.text) is not None or "table_exists" in transform.text
    this = inputs.this() if asks_this and transform.language is Language.SQL else None
    if this is not None:
        this.createOrReplaceTempView(_THIS_VIEW)
    last = job.ledger.last_receipt(job.table_key)
    kept = last.watermark if last is not None and not inputs.pin.is_rerun else None
    return Context(
        strategy=job.task.settings.strategy,
        run_started_at=as_of,
        refs=lambda name: _view("ref", name, inputs.table),
        zones=lambda name: _view("zone", name, inputs.zone),
        this=_THIS_VIEW,
        table_exists=this is not None or last is not None,
        watermark_column=job.task.settings.watermark_column,
        watermark=None if kept is None else TypedValue(kept.value, kept.type),
        full_refresh=inputs.pin.refresh,
        window=inputs.pin.window is not None,
        variables=query.variables,
    )


def _view(kind: str, name: str, read: Callable[[str], DataFrame]) -> str:
    view = f"tm_{kind}_{re.sub(r'[^A-Za-z0-9]', '_', name)}_{name.encode().hex()[-8:]}"
    read(name).createOrReplaceTempView(view)
    return f"`{view}`"


def _asked(inputs: Inputs, query: Query, as_of: datetime) -> Result:
    file = query.transform.file
    rendered = render(Template(file, query.transform.text), context_of(inputs, query, as_of))
    try:
        return Result(inputs.job.spark.sql(rendered.sql), rendered.sql)
    except Exception as error:
        # What follows is the query's plan, or the query once more.
        text = next((line for line in str(error).splitlines() if line.strip()), "").partition("; line ")[0]
        place = _PLACE.search(str(error))
        line = rendered.template_line(int(place[1]), int(place[2]) + 1) if place else 0
        where = f"{file}:{line}" if line else file
        raise SourceError(f"{where}: {text[:500]}", hint="`tallymark preview` shows the query") from error


@dataclass(frozen=True)
class TransformContext:
    """`ctx` in `def transform(ctx)` of a pipeline.py."""

    spark: SparkSession
    ref: Callable[[str], DataFrame]
    landing_zone: Callable[[str], DataFrame]
    this: DataFrame | None  # the table as it was before this load; None before the first
    run_started_at: datetime
    watermark_value: WatermarkValue | None
    _context: Context

    @property
    def table_exists(self) -> bool:
        return self.this is not None

    def var(self, name: str, default: object = _NO_DEFAULT) -> Scalar | Any:
        if name in self._context.variables:
            return self._context.variables[name]
        if default is _NO_DEFAULT:
            raise ConfigError(f"there is no variable {name}", hint="set it under `vars`, or give a default")
        return default

    def __getattr__(self, name: str) -> Callable[[], bool]:
        """is_incremental() and its like, one for each strategy."""
        if name.startswith("is_") and name[3:] in tuple(Strategy):
            return partial(self._context.is_strategy, Strategy(name[3:]))
        raise AttributeError(f"ctx has no {name}")


def _called(inputs: Inputs, query: Query, as_of: datetime) -> DataFrame:
    transform = query.transform
    context = context_of(inputs, query, as_of)
    ctx = TransformContext(
        spark=inputs.job.spark,
        ref=inputs.table,
        landing_zone=inputs.zone,
        this=inputs.this() if _THIS.search(transform.text) else None,
        run_started_at=as_of,
        watermark_value=context.watermark.value if context.watermark else None,
        _context=context,
    )
    names: dict[str, Any] = {"__name__": "pipeline", "__file__": str(transform.path), "ctx": ctx}
    names |= {name: getattr(ctx, name) for name in ("spark", "ref", "landing_zone", "var")}
    try:
        exec(compile(transform.text, transform.file, "exec"), names)  # noqa: S102  the user's own program
        frame = names["transform"](ctx) if callable(names.get("transform")) else names.get("result")
    except TallymarkError:
        raise
    except Exception as error:
        raise _at_its_line(transform.file, error) from error
    if not isinstance(frame, DataFrame):
        raise SourceError(
            f"{transform.file}: gave {type(frame).__name__}, not a DataFrame",
            hint="return a Spark DataFrame from transform(ctx), or set `result` to one",
        )
    return frame


def _at_its_line(file: str, error: Exception) -> SourceError:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"{file}:{own[-1].lineno}" if own else file
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    return SourceError(f"{where}: {type(error).__name__}: {words[:500]}", hint="repair it, then run again")
