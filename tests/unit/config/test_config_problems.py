"""Every mistake in a file: its line, its key, its message and what was probably meant."""

from __future__ import annotations

import pytest

from unit.config.project_folder import Problems

SOURCE = "source: {files: in/*.csv}\n"
STRATEGIES = (
    "full_refresh, append_only, insert, update, upsert, incremental, deduplicate, full_merge, "
    "delete_insert, snapshot, scd2 or cdc"
)
FORMATS = "csv, ndjson, json, parquet, orc, avro, xml, text, excel or fixed_width"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # unknown keys: the spelling, the level, the file
        ("\nmerge_stratgy: upsert", "3: merge_stratgy: unknown key; did you mean merge_strategy?"),
        ("Merge-Strategy: upsert", "2: Merge-Strategy: unknown key; did you mean merge_strategy?"),
        ("primary_key: id", "2: primary_key: unknown key; did you mean unique_key?"),
        ("strategy: upsert", "2: strategy: unknown key; did you mean merge_strategy?"),
        ("header: true", "2: header: unknown key; it belongs under source.options"),
        ("inferSchema: true", "2: inferSchema: unknown key; it belongs under source.options"),
        ("max_files: 3", "2: max_files: unknown key; it belongs under batch"),
        ("operation_column: op", "2: operation_column: unknown key; it belongs under cdc"),
        ("ledger: x", "2: ledger: unknown key; it belongs in tallymark.yaml"),
        ("name: orders", "2: name: unknown key; a pipeline's name is its folder"),
        ("maxfiles: 3", "2: maxfiles: unknown key; did you mean batch.max_files?"),
        ("zzz: 3", "2: zzz: unknown key"),
        ("batch:\n  unique_key: a", "3: batch.unique_key: unknown key; it belongs at the top level"),
        ("batch:\n  zzz: a", "3: batch.zzz: unknown key; expected max_files or max_bytes"),
        ("columns:\n  - name: a\n    tpye: int", "4: columns[0].tpye: unknown key; did you mean type?"),
        (
            "columns:\n  - {source: a, name: b}",
            "3: columns[0].source: unknown key; it belongs at the top level",
        ),
        (
            "cdc:\n  operation_column: op\n  operations: {insrt: [I]}",
            "4: cdc.operations.insrt: unknown key; expected insert, update, delete or truncate; "
            "did you mean insert?",
        ),
        # unknown words
        (
            "merge_strategy: upsrt",
            f"2: merge_strategy: upsrt is not one of {STRATEGIES}; did you mean upsert?",
        ),
        (
            "merge_strategy: merge",
            f"2: merge_strategy: merge is not one of {STRATEGIES}; did you mean upsert?",
        ),
        ("merge_strategy: 7", f"2: merge_strategy: expected one of {STRATEGIES}, found the whole number 7"),
        ("merge_strategy:", f"2: merge_strategy: expected one of {STRATEGIES}, found nothing"),
        (
            "schema_evolution: adds",
            "2: schema_evolution: adds is not one of add, ignore or fail; did you mean add?",
        ),
        # wrong kinds
        ("description: 5", "2: description: expected text, found the whole number 5; put quotes around it"),
        ("description: 1.5", "2: description: expected text, found the number 1.5; put quotes around it"),
        ("table: 2026-11-01", "2: table: expected text, found the date 2026-11-01; put quotes around it"),
        ("table: [a]", "2: table: expected text, found a list"),
        ("provenance: perhaps", '2: provenance: expected true or false, found the text "perhaps"'),
        (
            "columns: {a: int}",
            "2: columns: expected a list of mappings, found a mapping; begin each item with `- `",
        ),
        ("columns:\n  - id", '3: columns[0]: expected a mapping, found the text "id"'),
        (
            "unique_key: {a: 1}",
            "2: unique_key: expected text or a list of text, found a mapping; begin each item with `- `",
        ),
        (
            "unique_key:\n  - a\n  - 2",
            "4: unique_key[1]: expected text, found the whole number 2; put quotes around it",
        ),
        ("batch: 5", "2: batch: expected a mapping, found the whole number 5"),
        ("batch:", "2: batch: expected a mapping, found nothing; give it a value, or remove the line"),
        ("batch:\n  max_files: many", '3: batch.max_files: expected a whole number, found the text "many"'),
        ("batch: {max_files: true}", "2: batch.max_files: expected a whole number, found true"),
        ("batch: {max_files: 1.5}", "2: batch.max_files: expected a whole number, found the number 1.5"),
        # limits
        ("batch:\n  max_files: 0", "3: batch.max_files: must be at least 1, found 0"),
        ("quarantine: {max_fraction: 2}", "2: quarantine.max_fraction: must be at most 1, found 2"),
        (
            "quarantine: {max_fraction: .nan}",
            "2: quarantine.max_fraction: must be a finite number, found nan",
        ),
        (
            "batch: {max_bytes: 4GX}",
            "2: batch.max_bytes: expected a size such as 4GiB, 500MB or a whole number of bytes",
        ),
        ("batch: {max_bytes: 0}", "2: batch.max_bytes: must be at least 1 byte"),
        # empty and repeated names
        ('unique_key: " "', "2: unique_key: is empty"),
        ('unique_key: [a, ""]', "2: unique_key: holds an empty name"),
        ("unique_key: [id, ID]", "2: unique_key: names ID twice"),
        ("columns:\n  - name: a\n  - name: A", "2: columns: names A twice"),
        ('watermark_column: ""', "2: watermark_column: is empty"),
        # missing
        ("columns:\n  - type: int", "3: columns[0].name: missing; it is required: its name in the table"),
        # types
        (
            "columns: [{name: a, type: bigin}]",
            "2: columns[0].type: bigin is not a Spark SQL type; did you mean bigint?",
        ),
        (
            "columns: [{name: a, type: text}]",
            "2: columns[0].type: text is not a Spark SQL type; did you mean string?",
        ),
        (
            "columns: [{name: a, type: array}]",
            "2: columns[0].type: array needs its parts, such as array<bigint>",
        ),
        (
            "columns: [{name: a, type: 'struct<b:decimal(40,2)>'}]",
            "2: columns[0].type: a decimal has a precision from 1 to 38, and its scale is not larger than that",
        ),
        (
            "columns: [{name: a, type: varchar}]",
            "2: columns[0].type: varchar needs a length; use string, or varchar(20)",
        ),
        # a key given twice
        ("table: a\n\ntable: b", "4: table: given twice; first on line 2; keep one"),
        (
            "batch:\n  max_files: 1\n  max_files: 2",
            "4: batch.max_files: given twice; first on line 3; keep one",
        ),
        # YAML that means nothing here
        ("<<: {table: a}", "2: merge keys (<<) are not supported; write the keys out"),
        ("table: !secret a", "2: table: the tag !secret is not supported; remove it"),
        (
            "table: !!python/object:os.system a",
            "2: table: a is not a valid python/object:os.system; put quotes around a text",
        ),
        ("batch: !!set {a}", "2: batch: the tag !!set is not supported; remove it"),
        ("table: 2026-13-45", "2: table: 2026-13-45 is not a valid timestamp; put quotes around a text"),
        ("[a]: 1", "2: a key must be text, found a list"),
        ("${X}: 1", "2: ${X}: variables are put into values, not into keys"),
    ],
)
def test_mistakes_in_a_pipeline(orders: Problems, text: str, problem: str) -> None:
    assert orders(SOURCE + text + "\n") == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source: in/*.csv", '1: source: expected a mapping, found the text "in/*.csv"'),
        (
            "source:\n  files: [a, 2]",
            "2: source.files[1]: expected text, found the whole number 2; put quotes around it",
        ),
        (
            "source:\n  files: 7",
            "2: source.files: expected text or a list of text, found the whole number 7; put quotes around it",
        ),
        ("source: {files: []}", "1: source.files: is empty; expected a glob such as landing/orders/*.csv"),
        (
            "source:\n  files: x\n  format: cvs",
            f"3: source.format: cvs is not one of {FORMATS}; did you mean csv?",
        ),
        (
            "source:\n  files: x\n  order: nam",
            "3: source.order: nam is not one of name or modified; did you mean name?",
        ),
        (
            "source:\n  files: x\n  header: true",
            "3: source.header: unknown key; it belongs under source.options",
        ),
        (
            "source:\n  files: x\n  options: {a: [1]}",
            "3: source.options.a: expected text, a number or true or false, found a list",
        ),
        (
            "source:\n  files: x\n  sheet: true",
            "3: source.sheet: expected text or a whole number, found true; put quotes around it",
        ),
        (
            "source:\n  files: x\n  format: fixed_width",
            "1: source: format fixed_width needs fields: a list of {name, start, width}",
        ),
        (
            "source:\n  files: x\n  fields: [{name: a, start: 0, width: 1}]",
            "3: source.fields[0].start: must be at least 1, found 0",
        ),
        (
            "source:\n  files: x\n  stability: {min_age: 3}",
            "3: source.stability.min_age: unknown key; did you mean min_age_seconds?",
        ),
    ],
)
def test_mistakes_in_a_source(orders: Problems, text: str, problem: str) -> None:
    assert orders(text) == [problem]


MISSING_SOURCE = (
    "source: missing; say where the rows come from, such as source: {files: landing/orders/*.csv}, "
    "or put a pipeline.sql or pipeline.py beside it"
)


@pytest.mark.parametrize(
    ("text", "line"), [("", 1), ("# nothing yet\n", 1), ("---\n", 1), ("\n\ntable: a\n", 3)]
)
def test_a_pipeline_without_source(orders: Problems, text: str, line: int) -> None:
    assert orders(text) == [f"{line}: {MISSING_SOURCE}"]


def test_a_decimal_without_quotes_inside_braces(orders: Problems) -> None:
    quotes = 'in quotes: "decimal(12,2)"'
    assert orders(SOURCE + "columns:\n  - {name: a, type: decimal(12,2)}\n") == [
        f"3: columns[0].type: has an unclosed bracket; inside {{ }} write it {quotes}",
        f"3: columns[0].2): unknown key; inside {{ }} write the type {quotes}",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: a\nmaster: local", "2: master: unknown key; it belongs under spark"),
        ("merge_strategy: upsert", "1: merge_strategy: unknown key; it belongs in a pipeline's config.yaml"),
        ("spark:\n  mster: local", "2: spark.mster: unknown key; did you mean master?"),
        (
            "spark: {conf: {a: {b: 1}}}",
            "1: spark.conf.a: expected text, a number or true or false, found a mapping",
        ),
        ("parallel: 0", "1: parallel: must be at least 1, found 0"),
        ("parallel: true", "1: parallel: expected a whole number, found true"),
        (
            "destinations:\n  lake:\n    type: delta",
            "2: destinations.lake: needs path (a folder or URL) or catalog (the name of a Spark catalog)",
        ),
        (
            "destinations:\n  lake: {path: a, catalog: b}",
            "2: destinations.lake: has both path and catalog; keep one",
        ),
        (
            "destinations:\n  lake:\n    type: dleta\n    path: w",
            "3: destinations.lake.type: dleta is not one of delta, iceberg, sqlite, duckdb or postgres; did you mean delta?",
        ),
        (
            "destinations:\n  lake: {type: [delta]}",
            "2: destinations.lake.type: expected one of delta, iceberg, sqlite, duckdb or postgres, found a list",
        ),
        (
            "destinations:\n  lake:",
            "2: destinations.lake: expected a mapping, found nothing; give it a value, or remove the line",
        ),
        ("destinations:\n  lake: {pth: w}", "2: destinations.lake.pth: unknown key; did you mean path?"),
        (
            "destinations:\n  lake: {type: postgres}",
            "2: destinations.lake.url: missing; it is required: postgres only: postgresql://user:${PGPASSWORD}@host/db",
        ),
        (
            "name: a\nledger: mysql://h/db",
            "2: ledger: expected sqlite:///path/to/file.db or postgresql://user@host/database",
        ),
        (
            "ledger: 'sqlite:///:memory:'",
            "1: ledger: expected sqlite:///path/to/file.db or postgresql://user@host/database",
        ),
    ],
)
def test_mistakes_in_a_project(project_file: Problems, text: str, problem: str) -> None:
    assert project_file(text) == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source:\n\tfiles: x", "2: a tab; YAML is indented with spaces"),
        (
            "source:\n  files: x\n table: y",
            "3: wrong indentation; keys of one level begin in the same column",
        ),
        (
            "table: a: b",
            "1: a second `:` in the line, or wrong indentation; put quotes around a text that holds `: `",
        ),
        ("source: {files: x\ntable: y", "2: not YAML: expected ',' or '}', but got ':'"),
        (
            "source: {files: ${X}}",
            "1: not YAML: expected ',' or '}', but got '{'; inside { } or [ ] put quotes around it: \"${…}\"",
        ),
        (
            "table: @a",
            "1: not YAML: found character '@' that cannot start any token; put quotes around a text that begins with this",
        ),
        ("a: 1\n---\nb: 1", "2: a second document begins here (---); keep one per file"),
        ("a: *nothing", "1: not YAML: found undefined alias 'nothing'"),
        ("- a\n- b", "1: expected keys and values, found a list; write it as `key: value`"),
        ("just text", "1: expected keys and values, found a single value; write it as `key: value`"),
        (b"table: a\n# caf\xe9\n", "2: is not UTF-8 text; save the file as UTF-8"),
        ("table: a".encode("utf-16"), "1: is not UTF-8 text; save the file as UTF-8"),
        ("a: 1\nb: \x00", "2: is not YAML (ReaderError)"),
    ],
)
def test_files_that_are_not_yaml(orders: Problems, text: str | bytes, problem: str) -> None:
    assert orders(text) == [problem]
