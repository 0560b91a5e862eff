"""Settings in the head comment of pipeline.sql and pipeline.py, and what they win over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallymark.config.load_project import effective_settings
from tallymark.config.pipeline_folders import Pipeline
from tallymark.model.report import SettingOrigin
from tallymark.model.settings import Strategy
from unit.config.project_folder import Folder, Problems, problems_of

REVENUE = "pipelines/gold/revenue"
QUERY = "SELECT 1 AS day\n"


@pytest.fixture
def revenue(folder: Folder) -> Callable[..., Pipeline]:
    """The pipeline gold.revenue, with the head of its file and perhaps a config.yaml."""

    def load(
        head: str | bytes,
        config: str | None = None,
        file: str = "pipeline.sql",
        code: str = QUERY,
        **environment: str,
    ) -> Pipeline:
        folder.write({f"{REVENUE}/{file}": head + code if isinstance(head, str) else head})
        if config is not None:
            folder.write({f"{REVENUE}/config.yaml": config})
        return folder.load(**environment).pipelines["gold.revenue"]

    return load


@pytest.fixture
def problems(folder: Folder) -> Problems:
    """The problems of its pipeline.sql, without the file's name."""

    def find(text: str | bytes, **environment: str) -> list[str]:
        folder.write({f"{REVENUE}/pipeline.sql": text})
        lines = folder.problems(**environment)
        assert all(line.startswith(f"{REVENUE}/pipeline.sql:") for line in lines), lines
        return [line.removeprefix(f"{REVENUE}/pipeline.sql:").strip() for line in lines]

    return find


def test_annotations_win_over_config_yaml_which_wins_over_the_project(
    folder: Folder, revenue: Callable[..., Pipeline]
) -> None:
    folder.write({"tallymark.yaml": "vars: {a: 1, b: 1, c: 1}\ndefaults: {strict: true}"})
    pipeline = revenue(
        "-- @merge_strategy: incremental\n-- @vars.a: 3\n-- @guards.max_delete_fraction: 0.3\n",
        "merge_strategy: upsert\nunique_key: [day]\nvars: {a: 2, b: 2}\nstrict: false\n"
        "guards: {max_delete_fraction: 0.9}\nretry: {max_attempts: 7}\n",
    )
    assert pipeline.settings.strategy is Strategy.INCREMENTAL
    assert pipeline.settings.unique_key == ("day",)
    assert pipeline.settings.max_delete_fraction == 0.3
    assert pipeline.settings.strict is False
    assert pipeline.config.retry.max_attempts == 7
    assert pipeline.variables == {"a": 3, "b": 2, "c": 1}


def test_a_section_is_overridden_key_by_key_and_a_list_whole(revenue: Callable[..., Pipeline]) -> None:
    pipeline = revenue(
        "-- @quarantine.max_rows: 5\n-- @columns: [{name: a, type: 'decimal(12,2)'}]\n",
        "quarantine: {max_fraction: 0.5, max_rows: 9}\ncolumns: [{name: x}, {name: y}]\n",
    )
    assert (pipeline.config.quarantine.max_fraction, pipeline.config.quarantine.max_rows) == (0.5, 5)
    assert [column.name for column in pipeline.config.columns] == ["a"]


@pytest.mark.parametrize("written", ["a, b", "[a, b]", '["a", b]', "a,b   # the key", "  a , b  "])
def test_lists(revenue: Callable[..., Pipeline], written: str) -> None:
    assert revenue(f"-- @unique_key: {written}\n").config.unique_key == ["a", "b"]


@pytest.mark.parametrize(
    "head",
    [
        "--@table: silver.x\n",
        "-- @table : silver.x\n",
        "---- @table: silver.x\n",
        "--\t@table:\tsilver.x\n",
        "\n\n  -- words\n-- @table: silver.x\n",
        "/* @table: silver.x */\n",
        "/*\n * Words.\n * @table: silver.x\n */\n",
        "{# @table: silver.x #}\n",
        "{#- @table: silver.x -#}\n",
        "-- one\r\n-- @table: silver.x\r\n",
        "-- one\r-- @table: silver.x\r",
        "\ufeff-- @table: silver.x\n",
        "-- @todo nothing\n/* größe ✓ */ -- @table: silver.x\n",
        '-- @table: "silver.x"\n',
        "-- @table: ${TABLE}\n",
        "-- @table: ${NONE:-silver.x}\n",
    ],
)
def test_spellings_of_a_head(revenue: Callable[..., Pipeline], head: str) -> None:
    assert revenue(head, TABLE="silver.x").table == "silver.x"


@pytest.mark.parametrize(
    "head",
    [
        "# @table: silver.x\n",
        "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n#@table: silver.x\n",
        '"""What it does."""\n\n# @table: silver.x\n',
    ],
)
def test_heads_of_python(revenue: Callable[..., Pipeline], head: str) -> None:
    code = "def transform(ctx):\n    return ctx.ref('a')\n"
    assert revenue(head, file="pipeline.py", code=code).table == "silver.x"


def test_nested_sections(revenue: Callable[..., Pipeline]) -> None:
    cdc = revenue(
        "-- @merge_strategy: cdc\n-- @unique_key: id\n-- @cdc.sequence_by: lsn\n"
        "-- @cdc.operations.delete: D, X\n-- @cdc.operations.insert: [I]\n"
    ).config.cdc
    assert cdc is not None
    assert cdc.sequence_by == ["lsn"]
    assert cdc.operations == {"delete": ["D", "X"], "insert": ["I"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "-- one\n--   @merge_stratgy: scd2\nSELECT 1",
            "2: merge_stratgy: unknown key; did you mean merge_strategy?",
        ),
        ("-- @unique-key: a\nSELECT 1", "1: unique-key: unknown key; did you mean unique_key?"),
        (
            "-- @merge_strategy: scd3\nSELECT 1",
            "1: merge_strategy: scd3 is not one of full_refresh, append_only, insert, update, upsert, "
            "incremental, deduplicate, full_merge, delete_insert, snapshot, scd2 or cdc; did you mean scd2?",
        ),
        (
            "-- @table: a\n-- @table: b\nSELECT 1",
            "2: table: given twice; first on line 1; keep one",
        ),
        (
            "-- @guards: {max_delete_fraction: 0.1}\n-- @guards.max_delete_fraction: 0.2\nSELECT 1",
            "2: guards.max_delete_fraction: given twice; first on line 1; keep one",
        ),
        (
            "-- @description: Revenue: by day\nSELECT 1",
            "1: description: a second `:` in the line; "
            "put quotes around a text that holds `: `, and { } around a mapping",
        ),
        ("-- @unique_key: - a\nSELECT 1", "1: unique_key: a list on one line is written a, b or [a, b]"),
        (
            "-- @table:\nSELECT 1",
            "1: table: has no value; give it one, or remove the line",
        ),
        ("-- @table: ${NOPE}\nSELECT 1", "1: table: environment variable NOPE is not set"),
        ("-- @table silver.x\nSELECT 1", "1: table: has no `:`; write @table: silver.x"),
        (
            "-- @guards.max_delete_fraction: 7\nSELECT 1",
            "1: guards.max_delete_fraction: must be at most 1, found 7",
        ),
        (
            "-- @guards.max_delete_fracton: 0.5\nSELECT 1",
            "1: guards.max_delete_fracton: unknown key; did you mean max_delete_fraction?",
        ),
        ("-- @.table: x\nSELECT 1", "1: table: is not the name of a setting"),
        ("-- @a.b.c.d.e.f: x\nSELECT 1", "1: a.b.c.d.e.f: is not the name of a setting"),
        (
            "SELECT 1 -- @merge_strategy: scd2\n",
            "1: merge_strategy: a setting below the first line of code has no effect; "
            "move it into the comment at the top of the file, or write it without @",
        ),
        (
            "-- @source: {files: a.csv}\nSELECT 1",
            "1: source: the rows come from pipeline.sql, so a source has no use; "
            "remove source, or pipeline.sql",
        ),
        (
            "-- @batch.max_files: 3\nSELECT 1",
            "1: batch: limits the files of one commit, but the result of a transform is always one batch; "
            "remove it",
        ),
        (
            "-- @materialized: view\n-- @merge_strategy: upsert\n-- @unique_key: a\nSELECT 1",
            "1: materialized: a view keeps no rows, so merge_strategy upsert has nothing to merge into; "
            "remove merge_strategy, or set materialized: table",
        ),
        (
            "-- @materialized: view\n-- @unique_key: a\nSELECT 1",
            "2: unique_key: applies to rows that are merged into a table; a view keeps none; "
            "remove it, or set materialized: table",
        ),
        (
            "-- @materialized: view\n-- @archive_landing_zones: true\nSELECT 1",
            "2: archive_landing_zones: a view reads its files again each time, so they must stay; "
            "remove it, or set materialized: table",
        ),
        (
            "-- @vars: {a-b: 1}\nSELECT 1",
            "1: vars: a-b cannot be the name of a variable: use letters, digits and _",
        ),
        (
            "-- @vars.a: [1]\nSELECT 1",
            "1: vars.a: expected text, a number, true or false, a date or a time, found a list",
        ),
    ],
)
def test_mistakes(problems: Problems, text: str, expected: str) -> None:
    assert problems(text) == [expected]


@pytest.mark.parametrize(
    ("value", "column"), [("[a, b", 21), ("{a", 19), ('"a', 19), ("@a", 16), ("\t[", 18), ("[a\x07b]", 18)]
)
def test_broken_yaml_is_found_in_its_column(
    folder: Folder, problems: Problems, value: str, column: int
) -> None:
    (line,) = problems(f"-- @unique_key: {value}\nSELECT 1")
    assert line.startswith("1: unique_key: ")
    (problem,) = problems_of(folder.error())
    assert problem["line"] == 1
    assert abs(problem["column"] - column) <= 1


def test_columns_of_keys_and_list_items_are_those_of_the_file(folder: Folder, problems: Problems) -> None:
    problems("/*\n   @unique_key: [a, {x: 1}]\n*/ SELECT 1")
    (problem,) = problems_of(folder.error())
    assert (problem["line"], problem["column"], problem["key"]) == (2, 21, "unique_key[1]")


@pytest.mark.parametrize(
    "code",
    [
        "SELECT 1 -- @todo: tidy up\n",
        "SELECT 1 -- @merge_strategy scd2\n",
        "SELECT '-- @merge_strategy: scd2'\n",
        "SELECT '\n-- @merge_strategy: scd2\n'\n",
        'SELECT "it\\"s -- @merge_strategy: scd2"\n',
        "SELECT 1 AS `-- @merge_strategy: scd2`\n",
        "SELECT 1 -- mail me@table: x\n",
    ],
)
def test_what_is_no_setting_below_the_head(revenue: Callable[..., Pipeline], code: str) -> None:
    assert revenue("", code=code).settings.strategy is Strategy.FULL_REFRESH


def test_a_setting_in_a_later_comment_of_python(folder: Folder) -> None:
    text = (
        "x = '# @table: a'\n\ndef transform(ctx):\n    # @merge_strategy: upsert\n    return ctx.ref('a')\n"
    )
    folder.write({f"{REVENUE}/pipeline.py": text})
    (line,) = folder.problems()
    assert line.startswith(f"{REVENUE}/pipeline.py:4: merge_strategy: a setting below the first line of code")


def test_problems_of_both_files_come_at_once(folder: Folder) -> None:
    folder.write(
        {
            f"{REVENUE}/config.yaml": "tabel: x\n",
            f"{REVENUE}/pipeline.sql": "-- @tabel: y\n-- @z: 1\nSELECT 1",
        }
    )
    assert folder.problems() == [
        f"{REVENUE}/pipeline.sql:1: tabel: unknown key; did you mean table?",
        f"{REVENUE}/pipeline.sql:2: z: unknown key",
    ]


def test_thousands_of_annotations_end_in_one_problem(problems: Problems) -> None:
    head = "".join(f"-- @vars.v{number}: 1\n" for number in range(1002))
    assert problems(head + "SELECT 1") == [
        "1001: more than 1000 settings in the head comment; put them into config.yaml"
    ]


def test_where_rows_come_from(folder: Folder) -> None:
    folder.write({f"{REVENUE}/pipeline.sql": "SELECT 1", f"{REVENUE}/pipeline.py": "result = 1"})
    assert folder.problems() == [
        f"{REVENUE}/pipeline.py: pipeline.sql is there too, and a pipeline has one of them; keep one"
    ]


def test_a_view_needs_a_query(folder: Folder) -> None:
    folder.write({f"{REVENUE}/config.yaml": "source: {files: a}\nmaterialized: view\n"})
    assert folder.problems() == [
        f"{REVENUE}/config.yaml:2: materialized: a view needs a pipeline.sql, and this pipeline has none; "
        "remove it"
    ]


@pytest.mark.parametrize(
    ("name", "right"),
    [("Pipeline.sql", "pipeline.sql"), ("pipeline.PY", "pipeline.py"), ("revenue.sql", "pipeline.sql")],
)
def test_files_that_would_be_passed_over(folder: Folder, name: str, right: str) -> None:
    folder.write({f"{REVENUE}/{name}": "SELECT 1"})
    assert folder.problems() == [f"{REVENUE}/{name}: is not read; rename it to {right}"]


def test_other_queries_beside_a_pipeline_are_left_alone(
    folder: Folder, revenue: Callable[..., Pipeline]
) -> None:
    folder.write({f"{REVENUE}/notes.sql": "SELECT 2"})
    transform = revenue("").transform
    assert transform is not None
    assert transform.text == QUERY


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"SELECT '\xff'", ":1: is not UTF-8 text; save the file as UTF-8"),
        (b"-- x\n" * 220_000, ": is larger than 1024 KiB; is this a query?"),
    ],
)
def test_unreadable_queries(folder: Folder, content: bytes, problem: str) -> None:
    folder.write({f"{REVENUE}/pipeline.sql": content})
    assert folder.problems() == [f"{REVENUE}/pipeline.sql{problem}"]


def test_a_query_that_is_a_folder(folder: Folder) -> None:
    (folder.root / REVENUE / "pipeline.sql").mkdir(parents=True)
    assert folder.problems() == [f"{REVENUE}/pipeline.sql: is not a regular file"]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("piece", ["/*", "'", "{#", "`", '"', "--", "-", "{", "@a", "-- @x\n", "'\\"])
def test_a_large_file_of_rubbish_is_read_in_a_moment(folder: Folder, piece: str) -> None:
    folder.write({f"{REVENUE}/pipeline.sql": piece * (1_000_000 // len(piece))})
    folder.load()


def test_effective_settings_say_where_they_came_from(
    folder: Folder, revenue: Callable[..., Pipeline]
) -> None:
    folder.write({"tallymark.yaml": "vars:\n  region: eu\ndefaults:\n  strict: true\n"})
    pipeline = revenue(
        "-- @unique_key: day\n-- @vars.password: ${PASSWORD}\n",
        "merge_strategy: upsert\ncolumns:\n  - {from: d, name: day}\n",
        PASSWORD="hunter2-again",
    )
    project = folder.load(PASSWORD="hunter2-again")
    found = {setting.key: setting for setting in effective_settings(project, pipeline)}
    shown = {key: (found[key].value, found[key].origin, found[key].place) for key in found}
    assert shown["unique_key"] == (["day"], SettingOrigin.ANNOTATION, f"{REVENUE}/pipeline.sql:1")
    assert shown["merge_strategy"] == ("upsert", SettingOrigin.PIPELINE, f"{REVENUE}/config.yaml:1")
    assert shown["columns"] == (
        [{"name": "day", "from": "d"}],
        SettingOrigin.PIPELINE,
        f"{REVENUE}/config.yaml:2",
    )
    assert shown["strict"] == (True, SettingOrigin.PROJECT, "tallymark.yaml:4")
    assert shown["vars.region"] == ("eu", SettingOrigin.PROJECT, "tallymark.yaml:2")
    assert shown["vars.password"] == ("***", SettingOrigin.ANNOTATION, f"{REVENUE}/pipeline.sql:2")
    assert shown["table"] == ("gold.revenue", SettingOrigin.DEFAULT, "default")
    assert shown["destination"] == ("lake", SettingOrigin.DEFAULT, "default")
    assert not any(key.startswith(("source", "cdc", "batch")) for key in found)
