"""Settings on which the rows of a load depend, each with its one value and the reason for it.

With another value the same file gives other rows, other types, or none. So every session that Tallymark works
on has these values, whatever the caller's session, a cluster or a server is set to; tallymark.yaml may repeat
but not change them. The caller's own session is never touched.

A destination adds what its format depends on (`SparkNeeds.required`). A new setting is one line here and one,
with a hostile value, in `tests/hostile_settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Pinned:
    value: str
    why: str
    as_good: tuple[str, ...] = ()  # other values that give the same rows

    def accepts(self, value: str) -> bool:
        return value.lower() in {good.lower() for good in (self.value, *self.as_good)}


_TYPES = {
    "spark.sql.timestampType": Pinned("TIMESTAMP_LTZ", "`timestamp` would become timestamp_ntz in the table"),
    "spark.sql.session.timeZone": Pinned("UTC", "texts without a zone would be other moments"),
    "spark.sql.ansi.enabled": Pinned("true", "a value that does not fit would become NULL or wrap around"),
    "spark.sql.storeAssignmentPolicy": Pinned("ANSI", "a write would cut values that do not fit the column"),
    "spark.sql.decimalOperations.allowPrecisionLoss": Pinned("true", "products of decimals would be NULL"),
    "spark.sql.mapKeyDedupPolicy": Pinned("EXCEPTION", "a map with a key twice would lose one value"),
    "spark.sql.charAsVarchar": Pinned("false", "`char(n)` would not be padded"),
    "spark.sql.preserveCharVarcharTypeInfo": Pinned("false", "`char` columns would not be strings"),
    "spark.sql.readSideCharPadding": Pinned("true", "`char` values would not be equal to those written"),
    "spark.sql.variant.allowDuplicateKeys": Pinned("false", "an object with a key twice would lose one"),
    "spark.sql.variant.allowReadingShredded": Pinned("true", "shredded variants could not be read"),
}
_NAMES_AND_SYNTAX = {
    "spark.sql.caseSensitive": Pinned("false", "`ID` and `id` would be two columns"),
    "spark.sql.variable.substitute": Pinned("false", "`${env:NAME}` in a text would show the environment"),
    "spark.sql.parser.escapedStringLiterals": Pinned("false", "backslashes in literals would stay"),
    "spark.sql.parser.quotedRegexColumnNames": Pinned("false", "a quoted name would be a pattern"),
    "spark.sql.ansi.doubleQuotedIdentifiers": Pinned("false", "texts in double quotes would be columns"),
    "spark.sql.ansi.enforceReservedKeywords": Pinned("false", "columns named like keywords would fail"),
    "spark.sql.ansi.relationPrecedence": Pinned("false", "JOIN would bind before the comma"),
    "spark.sql.groupByAliases": Pinned("true", "queries of transforms would fail or group otherwise"),
    "spark.sql.groupByOrdinal": Pinned("true", "`GROUP BY 1` would be one group"),
    "spark.sql.orderByOrdinal": Pinned("true", "`ORDER BY 1` would not sort"),
    "spark.sql.lateralColumnAlias.enableImplicitResolution": Pinned(
        "true", "queries of transforms would fail"
    ),
    "spark.sql.stableDerivedColumnAlias.enabled": Pinned("false", "unnamed columns would change their names"),
    "spark.sql.retainGroupColumns": Pinned("true", "aggregates would lose their keys"),
    "spark.sql.runSQLOnFiles": Pinned("true", "tables in folders could not be read by SQL"),
    "spark.sql.crossJoin.enabled": Pinned("true", "queries without a join condition would fail"),
    "spark.sql.selfJoinAutoResolveAmbiguity": Pinned("true", "a table joined to itself would give all pairs"),
    "spark.sql.analyzer.failAmbiguousSelfJoin": Pinned("true", "an ambiguous column would be one of two"),
    "spark.sql.error.messageFormat": Pinned("PRETTY", "the reason of a failure would not be found"),
}
_FUNCTIONS = {
    "spark.sql.function.concatBinaryAsString": Pinned("false", "concatenated bytes would be text"),
    "spark.sql.function.eltOutputAsString": Pinned("false", "chosen bytes would be text"),
    "spark.sql.chunkBase64String.enabled": Pinned("true", "`base64` would give other texts"),
    "spark.sql.icu.caseMappings.enabled": Pinned("true", "`upper` and `lower` would give other texts"),
    "spark.sql.jsonGenerator.ignoreNullFields": Pinned("true", "quarantined records would hold other texts"),
    "spark.sql.jsonGenerator.writeNullIfWithDefaultValue": Pinned("true", "JSON would lose fields"),
    "spark.sql.json.enablePartialResults": Pinned("true", "one bad value would empty a whole JSON record"),
    "spark.sql.json.enableExactStringParsing": Pinned("true", "nested JSON kept as text would be changed"),
    "spark.sql.optimizer.metadataOnly": Pinned("false", "values of partitions without rows would appear"),
    "spark.sql.optimizer.decorrelateExistsSubqueryLegacyIncorrectCountHandling.enabled": Pinned(
        "false", "EXISTS over an empty count would be wrong"
    ),
    "spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled": Pinned(
        "false", "counts in subqueries would be NULL instead of 0"
    ),
}
_READING = {
    "spark.sql.files.ignoreCorruptFiles": Pinned("false", "rows of a damaged file would be missing silently"),
    "spark.sql.files.ignoreMissingFiles": Pinned("false", "rows of a deleted file would be missing silently"),
    "spark.sql.files.ignoreInvalidPartitionPaths": Pinned("false", "folders would be left out silently"),
    "spark.sql.sources.useV1SourceList": Pinned(
        "avro,csv,json,kafka,orc,parquet,text", "other readers do not say where a row stood in its file"
    ),
    "spark.sql.sources.partitionColumnTypeInference.enabled": Pinned(
        "true", "columns that folders name would be texts"
    ),
    "spark.sql.sources.validatePartitionColumns": Pinned("true", "a folder's bad value would become NULL"),
    "spark.sql.columnNameOfCorruptRecord": Pinned("_corrupt_record", "malformed records would be rows"),
    "spark.sql.csv.parser.columnPruning.enabled": Pinned("true", "other records would count as malformed"),
    "spark.sql.parquet.binaryAsString": Pinned("false", "bytes would be read as text"),
    "spark.sql.parquet.int96AsTimestamp": Pinned("true", "old timestamps could not be read"),
    "spark.sql.parquet.int96TimestampConversion": Pinned("false", "times by Impala would be shifted"),
    "spark.sql.parquet.inferTimestampNTZ.enabled": Pinned("true", "local times would be read as moments"),
    "spark.sql.parquet.fieldId.read.enabled": Pinned("false", "columns would be found by number, not name"),
    "spark.sql.parquet.fieldId.read.ignoreMissing": Pinned("false", "columns would be NULL silently"),
    "spark.sql.parquet.mergeSchema": Pinned("false", "the columns would depend on which files are read"),
    "spark.sql.parquet.respectSummaryFiles": Pinned("false", "columns of single files would be missed"),
    "spark.sql.parquet.datetimeRebaseModeInRead": Pinned("CORRECTED", "dates before 1582 would be shifted"),
    "spark.sql.parquet.int96RebaseModeInRead": Pinned("CORRECTED", "times before 1900 would be shifted"),
    "spark.sql.avro.datetimeRebaseModeInRead": Pinned("CORRECTED", "dates before 1582 would be shifted"),
    "spark.sql.orc.impl": Pinned("native", "ORC files would be read by Hive"),
    "spark.sql.orc.mergeSchema": Pinned("false", "the columns would depend on which files are read"),
    "spark.sql.execution.arrow.useLargeVarTypes": Pinned("false", "small batches would have other types"),
    "spark.sql.execution.pandas.convertToArrowArraySafely": Pinned(
        "true", "values of pandas functions would be cut"
    ),
}
_WRITING = {
    "spark.sql.sources.partitionOverwriteMode": Pinned(
        "STATIC", "a full refresh would keep partitions that have no new rows"
    ),
    "spark.sql.parquet.outputTimestampType": Pinned(
        "TIMESTAMP_MICROS", "times would be cut to milliseconds", as_good=("INT96",)
    ),
    "spark.sql.parquet.datetimeRebaseModeInWrite": Pinned("CORRECTED", "dates before 1582 would be shifted"),
    "spark.sql.parquet.int96RebaseModeInWrite": Pinned("CORRECTED", "times before 1900 would be shifted"),
    "spark.sql.avro.datetimeRebaseModeInWrite": Pinned("CORRECTED", "dates before 1582 would be shifted"),
    "spark.sql.defaultColumn.useNullsForMissingDefaultValues": Pinned(
        "true", "a batch that lacks a column would fail"
    ),
}

REQUIRED: Mapping[str, Pinned] = {**_TYPES, **_NAMES_AND_SYNTAX, **_FUNCTIONS, **_READING, **_WRITING}

# Each of them brings back how an older Spark read, cast or compared. They stay at Spark's own default.
_OF_OLDER_SPARKS = ("spark.sql.legacy.", "spark.sql.pyspark.legacy.")
# What these do shows in the type of a column, and there is no other way to read such files.
_MAY_BE_SET = frozenset({"spark.sql.legacy.parquet.nanosAsLong"})


def is_kept_at_default(key: str) -> bool:
    return key.startswith(_OF_OLDER_SPARKS) and key not in _MAY_BE_SET
