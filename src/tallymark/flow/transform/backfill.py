"""`--full-refresh`, `--since` and `--until`: which pipelines can compute rows again, and which rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallymark.config.pipeline_folders import Pipeline
from tallymark.errors import ConfigError, SourceError, Unsupported
from tallymark.model.batch import Rerun, Window
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# With these, rows of a window would replace all others, or be added a second time.
_NO_WINDOWS = {
    Strategy.FULL_REFRESH: "would replace the whole table by the window",
    Strategy.FULL_MERGE: "would delete every row outside the window",
    Strategy.APPEND_ONLY: "would add the rows of the window a second time",
}


def refuse_rerun(pipeline: Pipeline, rerun: Rerun) -> None:
    if not rerun.is_requested:
        return
    if rerun.full_refresh and rerun.is_windowed:
        raise ConfigError(
            "--full-refresh computes all rows again, --since and --until only a part: choose one",
            hint="leave out --full-refresh, or --since and --until",
        )
    asked = "--full-refresh" if rerun.full_refresh else "--since and --until"
    if pipeline.transform is None:
        raise Unsupported(
            f"{pipeline.name} loads files: {asked} is for transforms, which can compute their rows again",
            hint="name transforms only; to load rows of a file again, deliver a file with other content",
        )
    if pipeline.is_view:
        raise Unsupported(
            f"{pipeline.name} is a view, which keeps no rows: {asked} does not apply",
            hint="name the pipelines of the tables that it reads",
        )
    if pipeline.config.archive_landing_zones:
        raise Unsupported(
            f"{pipeline.name}: {asked} is not possible: the files of its landing zones were moved away "
            "(archive_landing_zones)",
            hint="to load them again, move the files back and drop the table",
        )
    strategy = pipeline.settings.strategy
    if rerun.full_refresh:
        _refuse_refresh(pipeline.name, strategy)
    else:
        _refuse_window(pipeline.name, pipeline.settings)


def window_of(settings: MergeSettings, rerun: Rerun) -> Window | None:
    column = _window_column(settings)
    if column is None or not rerun.is_windowed:
        return None
    return Window(column, rerun.since, rerun.until)


def rows_in(frame: DataFrame, window: Window, file: str) -> DataFrame:
    """Spark pushes the condition down into what the query reads, where it can."""
    field = next((f for f in frame.schema.fields if f.name.casefold() == window.column.casefold()), None)
    if field is None:
        raise SourceError(
            f"{file}: the result has no column {window.column}, which --since and --until refer to",
            hint="select it, or name another column by watermark_column",
        )
    from pyspark.sql import functions as F

    column, type_ = F.col(quoted(field.name)), field.dataType.simpleString()
    bounds = {"--since": window.since, "--until": window.until}
    given = {option: F.lit(text).try_cast(type_) for option, text in bounds.items() if text is not None}
    values = frame.sparkSession.range(1).select(*(v.alias(o) for o, v in given.items())).collect()[0].asDict()
    for option, value in values.items():
        if value is None:
            raise SourceError(
                f"{option} {bounds[option]}: not a valid {type_}; {field.name} is a {type_} column",
                hint="write it like 2026-01-31, '2026-01-31 12:00:00' or a number, to match the column",
            )
    if len(values) == len(bounds) and values["--since"] >= values["--until"]:
        raise SourceError(
            f"--since {window.since} is not before --until {window.until}: the window is empty",
            hint="--since is part of the window, --until is not",
        )
    if "--since" in given:
        frame = frame.where(column >= given["--since"])
    return frame.where(column < given["--until"]) if "--until" in given else frame


def _refuse_refresh(pipeline: str, strategy: Strategy) -> None:
    match strategy:
        case Strategy.UPDATE:
            why = "update only changes rows that are there, so it would leave an empty table"
        case Strategy.CDC:
            why = "the table remembers deletes of its change feed, which a refresh would have to forget"
        case _:
            return
    raise Unsupported(
        f"{pipeline}: --full-refresh is not possible: {why}",
        hint="to start over, drop the table and run again",
    )


def _refuse_window(pipeline: str, settings: MergeSettings) -> None:
    why = _NO_WINDOWS.get(settings.strategy)
    if settings.strategy is Strategy.SCD2 and settings.scd2.close_absent:
        why = "would close the versions of every key outside the window (scd_close_absent)"
    if why is not None:
        raise Unsupported(
            f"{pipeline}: --since and --until are not possible: {settings.strategy} {why}",
            hint="use delete_insert, snapshot or a strategy with a unique_key; or --full-refresh",
        )
    if _window_column(settings) is None:
        raise ConfigError(
            f"{pipeline}: no column is set for --since and --until",
            hint="set watermark_column, or partition_column",
        )


def _window_column(settings: MergeSettings) -> str | None:
    return settings.watermark_column or settings.partition_column or settings.scd2.effective_from
