"""The rows of a transform: pipeline.sql rendered and run, or pipeline.py called, on the inputs of its pin."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, assert_never

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.checks.split import Checked
from tallymark.config.query_files import Language
from tallymark.destinations.registry import spark_needs
from tallymark.errors import ConfigError, SourceError, TallymarkError
from tallymark.flow.job import Job, Query
from tallymark.flow.transform.backfill import rows_in
from tallymark.model.batch import Batch, Pin, QueryResult, Watermark, WatermarkValue
from tallymark.model.plan import TECHNICAL_COLUMNS
from tallymark.model.section import Scalar
from tallymark.model.settings import Strategy
from tallymark.model.table import PROVENANCE_COLUMNS, SOURCE_FILE
from tallymark.model.types import quoted
from tallymark.sources.read_files import CORRUPT, read_files
from tallymark.spark.sessions import settings_kept
from tallymark.templates import Context, Template, TypedValue, render

_NO_DEFAULT = object()
_PLACE = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")
_THIS = re.compile(r"\bthis\b")
_THIS_VIEW = "tm_this"
_NOT_FOR_QUERIES = {*TECHNICAL_COLUMNS, CORRUPT, *(column.name for column in PROVENANCE_COLUMNS)}


@dataclass(eq=False)
class Inputs:
    """Tables and landing zones in the versions of the pin. Each is read once, when it is first needed."""

    job: Job
    query: Query
    pin: Pin
    opened: ExitStack  # its owner closes it after the commit
    frames: dict[str, DataFrame] = field(default_factory=dict, init=False)

    def table(self, name: str) -> DataFrame:
        if name not in self.pin.tables:
            raise _undeclared("ref", name)
        table, version = self.job.connections.input_table(name), self.pin.tables[name]
        return self._once(f"ref {name}", lambda: table.read(version, self.job.spark))

    def zone(self, name: str) -> DataFrame:
        if name not in self.pin.zones:
            raise _undeclared("landing_zone", name)
        key = f"landing_zone {name}"
        if key not in self.frames:
            self.frames[key] = self._read_zone(name)
        return self.frames[key]

    def this(self) -> DataFrame | None:
        """The pipeline's own table as it is before this load."""
        target = self.job.target
        version = target.input_version()
        if version is None:
            return None
        return self._once("this", lambda: target.read(version, self.job.spark))

    def _once(self, key: str, read: Callable[[], AbstractContextManager[DataFrame]]) -> DataFrame:
        if key not in self.frames:
            self.frames[key] = self.opened.enter_context(read())
        return self.frames[key]

    def _read_zone(self, name: str) -> DataFrame:
        """A row that cannot be parsed stops the load: a query has no quarantine."""
        source = read_files(
            self.job.spark, self.query.zones[name], (), self.pin.zones[name], self.job.task.root
        )
        message = F.concat(F.col(SOURCE_FILE), F.lit(" holds a malformed record: "), F.col(CORRUPT))
        whole = source.frame.where(F.when(F.col(CORRUPT).isNull(), True).otherwise(F.raise_error(message)))
        return whole.drop(*_NOT_FOR_QUERIES)


def _undeclared(asked: str, name: str) -> ConfigError:
    return ConfigError(
        f"{asked}({name!r}) is not among the inputs that the file names",
        hint=f"call {asked} with a name in quotes, so that it is known before anything runs",
    )


@dataclass(frozen=True)
class TransformResult:
    frame: DataFrame
    sql: str = ""  # as it was run; empty for pipeline.py


def transformed(job: Job, query: Query, pin: Pin, as_of: datetime, opened: ExitStack) -> TransformResult:
    """`opened` is closed after the commit, because Spark may read inputs until then."""
    inputs = Inputs(job, query, pin, opened)
    match query.transform.language:
        case Language.SQL:
            result = _run_sql(inputs, query, as_of)
        case Language.PYTHON:
            result = TransformResult(_call_python(inputs, query, as_of))
        case _:
            assert_never(query.transform.language)
    frame = result.frame
    if pin.window is not None:
        frame = rows_in(frame, pin.window, query.transform.file)
    # `SELECT *` includes those of the inputs, which say nothing about the rows of this table.
    return TransformResult(frame.drop(*(column.name for column in PROVENANCE_COLUMNS)), result.sql)


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
    return quoted(view)


def _run_sql(inputs: Inputs, query: Query, as_of: datetime) -> TransformResult:
    file = query.transform.file
    rendered = render(Template(file, query.transform.text), context_of(inputs, query, as_of))
    try:
        return TransformResult(inputs.job.spark.sql(rendered.sql), rendered.sql)
    except Exception as error:
        # After the first line, Spark prints the plan or repeats the query.
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
    this: DataFrame | None  # the table before this load; None before the first load
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
        """is_incremental() and the like, one for each strategy."""
        if name.startswith("is_") and name[3:] in tuple(Strategy):
            return partial(self._context.is_strategy, Strategy(name[3:]))
        raise AttributeError(f"ctx has no {name}")


def _call_python(inputs: Inputs, query: Query, as_of: datetime) -> DataFrame:
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
        with settings_kept(inputs.job.spark, spark_needs()):
            exec(compile(transform.text, transform.file, "exec"), names)  # noqa: S102  the user's own program
            frame = names["transform"](ctx) if callable(names.get("transform")) else names.get("result")
    except TallymarkError:
        raise
    except Exception as error:
        raise _at_its_line(transform.file, error) from error
    if not isinstance(frame, DataFrame):
        raise SourceError(
            f"{transform.file}: returned {type(frame).__name__}, not a DataFrame",
            hint="return a Spark DataFrame from transform(ctx), or set `result` to one",
        )
    return frame


def _at_its_line(file: str, error: Exception) -> SourceError:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"{file}:{own[-1].lineno}" if own else file
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    return SourceError(f"{where}: {type(error).__name__}: {words[:500]}", hint="correct it, then run again")


def watermark_after(job: Job, batch: Batch, checked: Checked) -> Watermark | None:
    """The highest value of the watermark column that has been loaded, including this batch. Kept for
    transforms, whose queries continue from it."""
    name = job.task.settings.watermark_column
    if name is None or not isinstance(batch.contents, QueryResult):
        return None
    pin = batch.contents.pin
    rows = checked.good
    last = job.ledger.last_receipt(job.table_key)
    before = last.watermark if last is not None and not pin.refresh else None
    if pin.window is not None:  # rows between the watermark and the window are not loaded yet
        return before
    column = next((f for f in rows.schema.fields if f.name.casefold() == name.casefold()), None)
    if column is None:
        return before
    highest = rows.agg(F.max(rows[quoted(column.name)]).cast("string")).collect()[0][0]
    if highest is None:
        return before
    after = Watermark(highest, column.dataType.simpleString())
    if before is not None and before.type == after.type and before.value > after.value:  # type: ignore[operator]
        return before
    return after
