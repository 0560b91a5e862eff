"""The source of a MERGE: the labelled rows, and what it takes to repair duplicates in the same statement.

A row with MATCHES finds its row in the table, one without never does. A match that the table holds several
times is deleted with all its rows, by one source row that matches, and comes back as one that does not:
Delta lets one source row delete many, but never two source rows change one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.destinations.lakehouse.labels import Labelled, Repair
from tallymark.destinations.lakehouse.relations import same_match, written_rows
from tallymark.model.plan import FROM_BATCH, LABEL, Label, Merge
from tallymark.spark.sql import quoted

MATCHES = "_tm_matches"
_CHANGING = (Label.INSERT, Label.UPDATE, Label.CLOSE, Label.DELETE)


def merge_source(labelled: Labelled) -> DataFrame:
    """The plan's columns, LABEL and MATCHES."""
    assert isinstance(labelled.plan.shape, Merge)  # noqa: S101
    match = labelled.plan.shape.match
    changing = labelled.rows.where(F.col(LABEL).isin([str(label) for label in _CHANGING])).drop(FROM_BATCH)
    if labelled.null_matches:
        changing = _one_delete_each(changing, match)
    source = changing.withColumn(MATCHES, F.col(LABEL) != str(Label.INSERT))
    return source if labelled.repair is None else _repaired(labelled, labelled.repair, source, match)


def _one_delete_each(rows: DataFrame, match: tuple[str, ...]) -> DataFrame:
    """Rows without a whole key cannot be told apart, so each of them would be found by all."""
    deletes = F.col(LABEL) == str(Label.DELETE)
    return rows.where(~deletes).unionByName(rows.where(deletes).dropDuplicates(list(match)))


def _repaired(labelled: Labelled, repair: Repair, source: DataFrame, match: tuple[str, ...]) -> DataFrame:
    columns = labelled.plan.columns
    found = F.col(MATCHES)
    touched = _among(source.where(found), repair.keys, match, "left_semi")
    others = source.where(~found).unionByName(_among(source.where(found), repair.keys, match, "left_anti"))
    gone = _labelled(written_rows(columns, repair.keys), Label.DELETE, matches=True)
    replaced = touched.where(F.col(LABEL) != str(Label.DELETE)).drop(LABEL, MATCHES)
    left = written_rows(columns, _among(repair.survivors, touched, match, "left_anti"))
    back = _labelled(replaced.unionByName(left), Label.INSERT, matches=False)
    return others.unionByName(gone).unionByName(back)


def _among(rows: DataFrame, others: DataFrame, match: tuple[str, ...], how: str) -> DataFrame:
    keys = others.select(*map(quoted, match))
    return rows.alias("r").join(keys.alias("k"), same_match("r", "k", match), how)


def _labelled(rows: DataFrame, label: Label, *, matches: bool) -> DataFrame:
    return rows.withColumns({LABEL: F.lit(str(label)), MATCHES: F.lit(matches)})
