"""How labelled rows get into an Iceberg table: on a branch that main is then moved to.

1. A branch is made at the snapshot that the labels were computed on. Columns that are new are added to
   the table; Iceberg can do that only at once and for all, so readers see them, empty, before the rows.
2. Rows that go are deleted on the branch, then the new ones are appended. The marker is in the summary of
   the append, which is the last snapshot of the branch, even if it has no rows: a delete that needs only
   metadata would not carry it.
3. `fast_forward` moves main to the branch, if main is still where the branch began. Otherwise it is
   refused, and nothing of the load is in the table. That is also the fence against late writers.
4. The branch is dropped. One of a load that died is dropped by the next one.

A table that is not there yet is created with its first rows and their marker in one commit.

All methods give the same rows and counts. The cheapest one is chosen from what the labels have counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.contract import WriteMethod
from tallymark.destinations.iceberg.metadata import MARKER, Snapshot, TableMetadata
from tallymark.destinations.lakehouse.labels import Labelled
from tallymark.destinations.lakehouse.relations import key_range_filter, same_match, written_rows
from tallymark.errors import ConfigError, Unsupported
from tallymark.model.plan import (
    AddColumn,
    Append,
    ChangeType,
    Label,
    Merge,
    ReplaceSlices,
    ReplaceTable,
)
from tallymark.model.receipt import Marker
from tallymark.model.types import quoted
from tallymark.spark.frames import temporary_settings

BRANCH = "tallymark_"
_SNAPSHOT_PROPERTY = f"spark.sql.iceberg.snapshot-property.{MARKER}"
_KEYS = "tm_keys"
_FIRST = "tm_first"
_FRACTIONAL = ("float", "double")
_MOST_VALUES_TO_BROADCAST = 2_000_000  # every worker holds them all
_PUBLISH = "fast_forward"
_STAND_IN = "_tm_new_"
_STANDING_IN = re.compile(rf"{_STAND_IN}(\d+)_(.+)")


@dataclass(frozen=True)
class IcebergLayout:
    """Of a table that a load creates."""

    partition_by: tuple[str, ...] = ()  # as SQL
    sort_by: tuple[str, ...] = ()  # likewise
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IcebergTarget:
    catalog: str
    sql: str  # the table's name, with that of its catalog
    name: str  # the table's name in the catalog
    namespaces: tuple[str, ...]
    layout: IcebergLayout
    before: TableMetadata | None  # None: the load creates the table


def write(labelled: Labelled, method: WriteMethod, marker: Marker, target: IcebergTarget) -> None:
    if target.before is None:
        _create(labelled, marker, target)
        return
    spark = labelled.spark
    drop_dead_branches(spark, target.sql, target.before, marker.fence)
    name = f"{BRANCH}{marker.fence}_{marker.sequence}_{uuid4().hex[:8]}"
    head = target.before.head
    at = "" if head is None else f" AS OF VERSION {head}"
    spark.sql(f"ALTER TABLE {target.sql} CREATE BRANCH {quoted(name)}{at}")
    try:
        stand_ins = _change_columns(labelled, target, marker)
        branch = _Branch(spark, f"{target.sql}.{quoted(f'branch_{name}')}", marker, stand_ins)
        _METHODS[method.name](labelled, branch, target)
        publish(spark, target, name)
        finish_types(spark, target.sql, stand_ins)
    finally:
        with suppress(Exception):  # the next load drops it
            spark.sql(f"ALTER TABLE {target.sql} DROP BRANCH IF EXISTS {quoted(name)}")


def publish(spark: SparkSession, target: IcebergTarget, branch: str) -> None:
    table = ".".join(quoted(part) for part in target.name.split("."))
    spark.sql(
        f"CALL {quoted(target.catalog)}.system.{_PUBLISH}({_text(table)}, 'main', {_text(branch)})"
    ).collect()


def drop_dead_branches(spark: SparkSession, table_sql: str, table: TableMetadata, fence: int) -> None:
    """Whoever wrote them has lost the table since, or was an earlier attempt of this worker."""
    for name in table.branches:
        found = re.fullmatch(rf"{BRANCH}(\d+)_\d+_[0-9a-f]+", name)
        if found is not None and int(found[1]) <= fence:
            spark.sql(f"ALTER TABLE {table_sql} DROP BRANCH IF EXISTS {quoted(name)}")


def write_methods(labelled: Labelled, before: TableMetadata | None) -> tuple[WriteMethod, ...]:
    """The cheapest first."""
    match labelled.plan.shape:
        case Append():
            return (WriteMethod("append", "every row is added"),)
        case ReplaceTable() | Merge(rebuilds=True):
            return (WriteMethod("overwrite", "the whole table is replaced"),)
        case ReplaceSlices(columns=columns):
            slices = WriteMethod("replace slices", "whole slices of the table are replaced")
            # Iceberg commits nothing if there are no rows.
            if before is None or not labelled.counts.total or not _are_partitions(labelled, columns, before):
                return (slices,)
            return (WriteMethod("replace partitions", "the slices are partitions of the table"), slices)
        case Merge():
            return _merge_methods(labelled)


def _are_partitions(labelled: Labelled, columns: tuple[str, ...], before: TableMetadata) -> bool:
    """Whether each partition holds the rows of one slice, and of no other. Fractional numbers are left out:
    -0.0 and 0.0 are one value in two partitions."""
    wanted = {column.casefold() for column in columns}
    is_fractional = any(
        column.name.casefold() in wanted and column.type in _FRACTIONAL for column in labelled.plan.columns
    )
    parts = before.partitioned_by
    identities = {name.casefold() for name, transform in parts if transform == "identity"}
    return (
        identities == wanted and len(parts) == len(wanted) and not is_fractional and not before.has_old_specs
    )


def _merge_methods(labelled: Labelled) -> tuple[WriteMethod, ...]:
    counts = labelled.counts
    if counts.changes == 0:
        return (WriteMethod("skip", "no row changes, so the commit carries only the marker"),)
    if counts.updated == counts.closed == counts.deleted == 0:
        return (WriteMethod("append new", "every change is a key that the table does not have"),)
    return (WriteMethod("delete and append", "rows change or go"),)


@dataclass(frozen=True)
class _Branch:
    """Where a load writes before it is published. Only its last write carries the marker."""

    spark: SparkSession
    sql: str
    marker: Marker
    stand_ins: Mapping[str, str]  # column → what stands in for it until main is moved

    def append(self, rows: DataFrame) -> None:
        with marked(self.spark, self.marker):
            self._writer(rows).append()

    def overwrite(self, rows: DataFrame) -> None:
        with marked(self.spark, self.marker):
            self._writer(rows).overwrite(F.lit(True))

    def overwrite_partitions(self, rows: DataFrame) -> None:
        with marked(self.spark, self.marker):
            self._writer(rows).overwritePartitions()

    def delete(self, keys: DataFrame, columns: tuple[str, ...], also: str = "", *, null_safe: bool) -> None:
        """Rows of the table that have one of these distinct keys."""
        keys.createOrReplaceTempView(_KEYS)
        equals = "<=>" if null_safe else "="
        on = " AND ".join(f"t.{quoted(name)} {equals} s.{quoted(name)}" for name in columns)
        if also:
            on = f"{also} AND {on}"
        self.spark.sql(
            f"MERGE INTO {self.sql} AS t USING {_KEYS} AS s ON {on} WHEN MATCHED THEN DELETE"
        ).collect()

    def _writer(self, rows: DataFrame) -> DataFrameWriterV2:
        for name, stand_in in self.stand_ins.items():
            rows = rows.withColumnRenamed(name, stand_in)
        return rows.writeTo(self.sql)


def _append(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    branch.append(labelled.rows)


def _append_new(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    branch.append(labelled.changed_rows(Label.INSERT))


def _skip(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    """No row changes, but the marker must be committed: the content counts as applied."""
    branch.append(labelled.changed_rows(Label.INSERT).limit(0))


def _overwrite(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    branch.overwrite(_added(labelled))


def _replace_partitions(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    branch.overwrite_partitions(labelled.rows)


def _replace_slices(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    plan = labelled.plan
    assert isinstance(plan.shape, ReplaceSlices)  # noqa: S101
    if labelled.counts.deleted:
        columns = plan.shape.columns
        keys = labelled.rows.select(*map(quoted, columns)).distinct()
        branch.delete(keys, columns, null_safe=True)
    branch.append(labelled.rows)


def _delete_and_append(labelled: Labelled, branch: _Branch, target: IcebergTarget) -> None:
    plan = labelled.plan
    assert isinstance(plan.shape, Merge)  # noqa: S101
    match, names = plan.shape.match, [quoted(name) for name in plan.shape.match]
    keys = labelled.changed_rows(Label.UPDATE, Label.CLOSE, Label.DELETE).select(*names)
    if labelled.repair is not None:
        keys = keys.unionByName(labelled.repair.keys.select(*names))
    keys = keys.distinct()
    if labelled.counts.changes * len(match) <= _MOST_VALUES_TO_BROADCAST:
        keys = F.broadcast(keys)
    null_safe = bool(labelled.null_matches) or labelled.repair is not None
    ranges = "" if null_safe else key_range_filter(plan, "t.")
    branch.delete(keys, match, ranges, null_safe=null_safe)
    branch.append(_added(labelled))


def _added(labelled: Labelled) -> DataFrame:
    """All rows that are written: also those that stay of several with one key, if the load leaves them."""
    shape = labelled.plan.shape
    if not isinstance(shape, Merge):
        return labelled.rows
    rows = labelled.changed_rows(Label.INSERT, Label.UPDATE, Label.CLOSE)
    if labelled.repair is None:
        return rows
    touched = labelled.changed_rows(Label.UPDATE, Label.CLOSE, Label.DELETE)
    left = labelled.repair.survivors.alias("s").join(
        touched.select(*map(quoted, shape.match)).alias("k"), same_match("s", "k", shape.match), "left_anti"
    )
    return rows.unionByName(written_rows(labelled.plan.columns, left))


_METHODS: dict[str, Callable[[Labelled, _Branch, IcebergTarget], None]] = {
    "append": _append,
    "append new": _append_new,
    "skip": _skip,
    "overwrite": _overwrite,
    "replace partitions": _replace_partitions,
    "replace slices": _replace_slices,
    "delete and append": _delete_and_append,
}


def _create(labelled: Labelled, marker: Marker, target: IcebergTarget) -> None:
    spark, plan = labelled.spark, labelled.plan
    for namespace in target.namespaces:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    _added(labelled).createOrReplaceTempView(_FIRST)
    parts = target.layout.partition_by or tuple(map(quoted, plan.partition_by))
    partitioned = f" PARTITIONED BY ({', '.join(parts)})" if parts else ""
    stated = {**plan.table_properties, **target.layout.properties}
    properties = ", ".join(f"{_text(k)} = {_text(v)}" for k, v in stated.items())
    sort = f" ORDER BY {', '.join(target.layout.sort_by)}" if target.layout.sort_by else ""
    with marked(spark, marker):
        spark.sql(
            f"CREATE TABLE {target.sql} USING iceberg{partitioned} TBLPROPERTIES ({properties}) "
            f"AS SELECT * FROM {_FIRST}{sort}"
        ).collect()


def _change_columns(labelled: Labelled, target: IcebergTarget, marker: Marker) -> dict[str, str]:
    """A type can only become wider in place. Any other type is that of a new column, which takes the name of
    the old one as soon as main is moved; a later load does it for one that died in between."""
    assert target.before is not None  # noqa: S101
    spark, stand_ins = labelled.spark, dict[str, str]()
    for change in labelled.plan.schema_changes:
        match change:
            case AddColumn(column=column):
                added, kind = column.name, column.type
            case ChangeType(name=name, before=before, after=after) if _promotes(before, after):
                spark.sql(f"ALTER TABLE {target.sql} ALTER COLUMN {quoted(name)} TYPE {after}")
                continue
            case ChangeType(name=name, after=after):
                if name.casefold() in {source.casefold() for source, _ in target.before.partitioned_by}:
                    raise Unsupported(
                        f"{target.name}: its partitions are made of {name}, so its type cannot change",
                        hint="load into another table, or change the partitions first",
                    )
                added = stand_ins[name] = f"{_STAND_IN}{marker.sequence}_{name}"
                kind = after
        if added not in target.before.column_names:
            spark.sql(f"ALTER TABLE {target.sql} ADD COLUMNS ({quoted(added)} {kind})")
    return stand_ins


def _promotes(before: str, after: str) -> bool:
    if (before, after) in (("int", "bigint"), ("float", "double")):
        return True
    decimals = [re.fullmatch(r"decimal\((\d+),(\d+)\)", kind) for kind in (before, after)]
    match decimals:
        case [re.Match() as old, re.Match() as new]:
            return old[2] == new[2] and int(old[1]) < int(new[1])
    return False


def unfinished_types(table: TableMetadata) -> dict[str, str] | None:
    """What stands in for other columns since a load died; None if that load did not move main."""
    found = {name: match for name in table.column_names if (match := _STANDING_IN.fullmatch(name))}
    if not found:
        return {}
    sequences = {snapshot.marker.sequence for snapshot in table.ancestors if snapshot.marker is not None}
    if any(int(match[1]) not in sequences for match in found.values()):
        return None
    return {match[2]: name for name, match in found.items()}


def finish_types(spark: SparkSession, table_sql: str, stand_ins: Mapping[str, str]) -> None:
    if not stand_ins:
        return
    names = spark.sql(f"SELECT * FROM {table_sql}").columns
    for name, stand_in in stand_ins.items():
        if name in names:
            before = names[names.index(name) - 1] if names[0] != name else None
            spark.sql(f"ALTER TABLE {table_sql} DROP COLUMN {quoted(name)}")
        spark.sql(f"ALTER TABLE {table_sql} RENAME COLUMN {quoted(stand_in)} TO {quoted(name)}")
        if name in names:
            place = "FIRST" if before is None else f"AFTER {quoted(before)}"
            spark.sql(f"ALTER TABLE {table_sql} ALTER COLUMN {quoted(name)} {place}")


def drop_stand_ins(spark: SparkSession, table_sql: str, table: TableMetadata) -> None:
    for name in filter(_STANDING_IN.fullmatch, table.column_names):
        spark.sql(f"ALTER TABLE {table_sql} DROP COLUMN {quoted(name)}")


@contextmanager
def marked(spark: SparkSession, marker: Marker) -> Iterator[None]:
    with temporary_settings(spark, {_SNAPSHOT_PROPERTY: marker.to_json()}):
        yield


def disagreement(labelled: Labelled, method: str, snapshots: list[Snapshot]) -> str:
    """Empty if what the commit counted agrees with the plan. The snapshots are those of the load, newest
    first."""
    counts, repair = labelled.counts, labelled.repair
    back = repair.found.keys - repair.deleted - repair.updated if repair is not None else 0
    rewritten = counts.updated + counts.closed + back
    expected = {"rows written": counts.inserted + rewritten}
    seen = {"rows written": snapshots[0].number("added-records")}
    if method in ("delete and append", "replace slices"):
        expected["rows removed"] = counts.deleted + rewritten
        seen["rows removed"] = sum(map(_removed, snapshots[1:]))
    if seen == expected:
        return ""
    return f"Iceberg's snapshot {snapshots[0].id} counted {seen}, the plan said {expected}"


def _removed(snapshot: Snapshot) -> int:
    """A file that is rewritten counts all its rows as deleted, and those that stay as added."""
    rewritten = snapshot.number("deleted-records") - snapshot.number("added-records")
    return rewritten + snapshot.number("added-position-deletes") - snapshot.number("removed-position-deletes")


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


_TRANSFORM = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)(?:\s*,\s*(\d+))?\s*\)")
_PLAIN = {name: f"{name}s" for name in ("year", "month", "day", "hour")}
_SIZED = ("bucket", "truncate")
_DIRECTION = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)


def partition_sql(parts: list[str]) -> tuple[str, ...]:
    """`days(at)`, `bucket(16, id)`, `truncate(name, 4)` or a column, as Spark takes them."""
    return tuple(map(_partition_part, parts))


def _partition_part(part: str) -> str:
    found = _TRANSFORM.fullmatch(part.strip())
    if found is None:
        return quoted(part.strip())
    name, size, column = found[1].casefold(), found[2] or found[4], quoted(found[3].strip("` "))
    name = _PLAIN.get(name, name)
    if name in _PLAIN.values() and size is None:
        return f"{name}({column})"
    if name in _SIZED and size is not None:
        return f"{name}({size}, {column})"
    raise ConfigError(
        f"partition_by: {part} is not a transform of Iceberg",
        hint="write a column, years, months, days or hours(column), or bucket or truncate(number, column)",
    )


def sort_sql(parts: list[str]) -> tuple[str, ...]:
    return tuple(map(_sort_part, parts))


def _sort_part(part: str) -> str:
    found = _DIRECTION.fullmatch(part.strip())
    assert found is not None  # noqa: S101
    direction = f" {found[2].upper()}" if found[2] else ""
    nulls = f" NULLS {found[3].upper()}" if found[3] else ""
    return f"{quoted(found[1].strip('` '))}{direction}{nulls}"


def properties_of(options: Mapping[str, str], format_version: int, write_mode: str) -> dict[str, str]:
    modes = {f"write.{kind}.mode": write_mode for kind in ("delete", "update", "merge")}
    return {"format-version": str(format_version)} | modes | dict(options)
