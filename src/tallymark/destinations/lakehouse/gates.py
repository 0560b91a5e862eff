"""Gates in Spark: the table as it would be after the load, and what gates find in it.

All gates are counted in one job. Rows to show are fetched only of those that found something.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from tallymark.destinations.lakehouse.labels import Labelled
from tallymark.destinations.lakehouse.relations import same_match, written_rows
from tallymark.destinations.queries import (
    count_column,
    is_in_summary,
    offending_query,
    render,
    summary_query,
    with_moments,
)
from tallymark.errors import ConfigError
from tallymark.model.gate import AFTER, MOST_SAMPLES, Gate, GateResult, QueryCheck, result_of
from tallymark.model.plan import LABEL, Append, Label, Merge, ReplaceSlices, ReplaceTable
from tallymark.model.types import exact_timestamp, quoted
from tallymark.spark.failures import reason

_GATE, _FOUND = "_tm_gate", "_tm_found"
_REPLACING = (Label.UPDATE, Label.CLOSE, Label.DELETE)


def table_after(effect: Labelled) -> DataFrame:
    """The plan's columns of every row that the table will hold. Computes nothing yet."""
    plan = effect.plan
    stays = written_rows(plan.columns, effect.current)
    match plan.shape:
        case _ if plan.creates_table:
            return _brought(effect)
        case ReplaceTable() | Merge(rebuilds=True):
            return _brought(effect)
        case Append():
            return stays.unionByName(effect.rows)
        case ReplaceSlices(columns=columns):
            return _without(stays, effect.rows, columns).unionByName(effect.rows)
        case Merge(match=match):
            replaced = effect.rows.where(F.col(LABEL).isin([str(label) for label in _REPLACING]))
            counts = effect.counts
            if counts.updated or counts.closed or counts.deleted:
                stays = _without(stays, replaced, match)
            return stays.unionByName(_brought(effect))


def _brought(effect: Labelled) -> DataFrame:
    if isinstance(effect.plan.shape, Merge):
        return effect.changed_rows(Label.INSERT, Label.UPDATE, Label.CLOSE)
    return effect.rows


def _without(rows: DataFrame, others: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    keys = others.select(*map(quoted, columns)).distinct()
    return rows.alias("r").join(keys.alias("k"), same_match("r", "k", columns), "left_anti")


def check_in_spark(effect: Labelled, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
    spark = effect.spark
    table_after(effect).createOrReplaceTempView(AFTER)
    try:
        found = _counts(spark, gates)
        return tuple(
            result_of(gate, found[position], _samples(spark, gate) if found[position] else ())
            for position, gate in enumerate(gates)
        )
    finally:
        spark.catalog.dropTempView(AFTER)


def _counts(spark: SparkSession, gates: Sequence[Gate]) -> dict[int, int]:
    frames = [_counted(_offending(spark, gate), n) for n, gate in enumerate(gates) if not is_in_summary(gate)]
    summary = summary_query(gates)
    if summary is not None:
        pairs = [
            f"named_struct('{_GATE}', {n}, '{_FOUND}', CAST({count_column(n)} AS BIGINT))"
            for n, gate in enumerate(gates)
            if is_in_summary(gate)
        ]
        frames.append(spark.sql(_text(summary)).selectExpr(f"inline(array({', '.join(pairs)}))"))
    lines = reduce(DataFrame.unionAll, frames).collect()
    return {int(line[_GATE]): int(line[_FOUND]) for line in lines}


def _counted(rows: DataFrame, position: int) -> DataFrame:
    return rows.agg(F.count("*").alias(_FOUND)).select(F.lit(position).alias(_GATE), _FOUND)


def _samples(spark: SparkSession, gate: Gate) -> list[dict[str, object]]:
    return [row.asDict(recursive=True) for row in _offending(spark, gate).limit(MOST_SAMPLES).collect()]


def _offending(spark: SparkSession, gate: Gate) -> DataFrame:
    written = gate.check.written if isinstance(gate.check, QueryCheck) else ""
    try:
        rows = spark.sql(written or _text(offending_query(gate.check)))
        rows.columns  # noqa: B018 (Spark Connect looks at the query only here)
    except AnalysisException as error:
        raise ConfigError(
            f"{gate.rule}: Spark refuses the query: {reason(error)}",
            hint="correct the query, then run `tallymark plan`",
        ) from error
    return rows


def _text(query: exp.Query) -> str:
    def moment(at: datetime) -> exp.Expr:
        parsed: exp.Expr = exp.maybe_parse(exact_timestamp(at), dialect="spark")
        return parsed

    return render(with_moments(query, moment), "spark", as_of=exp.null())
