"""`cdc` and `scd_*`: what they mean as settings, and what makes no sense together."""

from __future__ import annotations

import pytest

from tallymark.config.pipeline_file import PipelineConfig
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Scd2Settings
from unit.config.project_folder import Folder, Problems

SOURCE = "source: {files: in/*.csv}\n"
FEED = SOURCE + "merge_strategy: cdc\nunique_key: [id]\n"
HISTORY = SOURCE + "merge_strategy: scd2\nunique_key: [id]\n"


def settings(**keys: object) -> MergeSettings:
    return PipelineConfig.model_validate({"source": {"files": "x"}, **keys}).merge_settings()


def feed(**keys: object) -> CdcSettings:
    made = settings(merge_strategy="cdc", cdc=keys).cdc
    assert made is not None
    return made


def test_a_feed_without_a_word_has_the_usual_codes() -> None:
    made = feed()
    assert made == CdcSettings("op")
    assert made.codes_of(Operation.TRUNCATE) == []


def test_codes_are_compared_without_case_and_may_be_several() -> None:
    made = feed(operations={"insert": ["I", " NEW "], "truncate": "T"})
    assert made.codes_of(Operation.INSERT) == ["i", "new"]
    assert made.codes_of(Operation.TRUNCATE) == ["t"]
    assert made.codes_of(Operation.DELETE) == ["d", "delete"]


def test_what_the_user_says_of_a_code_wins_over_what_it_usually_means() -> None:
    made = feed(operations={"delete": ["R"]})
    assert made.codes_of(Operation.DELETE) == ["r"]
    assert "r" not in made.codes_of(Operation.INSERT) and "c" in made.codes_of(Operation.INSERT)


def test_everything_of_a_feed_becomes_settings() -> None:
    made = feed(
        operation_column="kind", sequence_by="lsn, pos", partial=True, history="scd2", tombstone_days=0.5
    )
    assert (made.operation_column, made.sequence_by) == ("kind", ("lsn", "pos"))
    assert (made.partial, made.history, made.tombstone_days) == (True, True, 0.5)


def test_an_envelope_has_its_own_codes_and_its_paths_become_columns() -> None:
    made = feed(envelope="debezium", sequence_by=["source.lsn", "ts_ms"])
    assert made.sequence_by == ("lsn", "ts_ms")
    assert made.codes_of(*Operation) == ["c", "r", "u", "d", "t"]


def test_a_history_has_columns_of_any_name() -> None:
    made = settings(
        merge_strategy="scd2",
        scd_valid_from="since",
        scd_valid_to="until",
        scd_current_flag="is_current",
        scd_effective_from="changed_at",
        scd_close_absent=True,
    )
    assert made.scd2 == Scd2Settings("since", "until", "is_current", "changed_at", True)
    assert settings().scd2 == Scd2Settings() and settings().cdc is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            SOURCE + "merge_strategy: upsert\nunique_key: id\ncdc: {sequence_by: lsn}",
            "4: cdc: applies only to merge_strategy cdc; this pipeline has upsert; "
            "set merge_strategy: cdc, or remove cdc",
        ),
        (
            FEED + "skip_unchanged: false",
            "4: skip_unchanged: false applies only to update, upsert, incremental, deduplicate, full_merge; "
            "this pipeline has cdc; remove it",
        ),
        (
            SOURCE + "merge_strategy: upsert\nunique_key: id\ncompare_columns: a\nskip_unchanged: false",
            "5: skip_unchanged: false turns comparing off, but compare_columns is set; remove one of them",
        ),
        (
            FEED + "cdc:\n  operations: {insert: [I], delete: [D, i]}",
            "5: cdc.operations: i means both insert and delete",
        ),
        (
            FEED + "cdc:\n  operations:\n    insert: [1]",
            "6: cdc.operations.insert[0]: expected text, found the whole number 1; put quotes around it",
        ),
        (FEED + "cdc:\n  tombstone_days: -1", "5: cdc.tombstone_days: must be at least 0, found -1"),
        (
            FEED + "cdc: {envelope: debezum}",
            "4: cdc.envelope: debezum is not one of debezium; did you mean debezium?",
        ),
        (
            FEED + "cdc:\n  envelope: debezium\n  operations: {insert: [I]}",
            "6: cdc.operations: a debezium envelope has its own codes: c, r, u, d and t; "
            "remove operations, or envelope if the files are flat",
        ),
        (
            FEED + "cdc:\n  operation_column: ID",
            "5: cdc.operation_column: ID is also in unique_key; "
            "name the column that says insert, update or delete, and nothing else",
        ),
        (
            FEED + "cdc:\n  sequence_by: [op]",
            "4: cdc.operation_column: op is also in sequence_by; "
            "name the column that says insert, update or delete, and nothing else",
        ),
        (
            FEED + "cdc:\n  sequence_by: [lsn, Id]",
            "5: cdc.sequence_by: Id is in unique_key, so it cannot order the changes of a key; "
            "name a column that grows with every change, such as a log position",
        ),
        (
            FEED + "cdc: {envelope: debezium, sequence_by: [ts_ms, source.ts_ms]}",
            "4: cdc.sequence_by: two paths end in the same name and would become the same column; "
            "keep one of them",
        ),
        (
            FEED + "scd_close_absent: true\ncdc: {history: scd2}",
            "4: scd_close_absent: a change feed does not hold every key, so an absent one means nothing; "
            "remove it: a delete in the feed closes the version",
        ),
        (
            FEED + "scd_valid_from: since\ncdc: {}",
            "4: scd_valid_from: applies only to a history of versions; this pipeline has merge_strategy cdc "
            "without history; set cdc.history: scd2, or remove it",
        ),
        (
            SOURCE + "scd_close_absent: true",
            "2: scd_close_absent: applies only to a history of versions; this pipeline has merge_strategy "
            "full_refresh; set merge_strategy: scd2, or remove it",
        ),
        (
            HISTORY + "scd_valid_from: Valid_To",
            "4: scd_valid_from: valid_to is also the name of scd_valid_to; give each its own column",
        ),
        (
            HISTORY + "scd_current_flag: valid_from",
            "4: scd_current_flag: valid_from is also the name of scd_valid_from; give each its own column",
        ),
        (
            HISTORY + "scd_effective_from: ID",
            "4: scd_effective_from: ID is in unique_key, but differs between the versions of a key; "
            "name another column, or take it out of unique_key",
        ),
    ],
)
def test_what_makes_no_sense_together(orders: Problems, text: str, problem: str) -> None:
    assert orders(text + "\n") == [problem]


@pytest.mark.parametrize("section", ["cdc: {}\n", ""])
def test_a_feed_may_say_nothing(folder: Folder, section: str) -> None:
    """Without the section the plan falls back, or says what is missing."""
    folder.write({"pipelines/a/config.yaml": FEED + section})
    assert (folder.load().pipelines["a"].settings.cdc is None) == (section == "")
