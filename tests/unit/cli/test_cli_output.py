"""What people read."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallymark.cli import output, screen
from tallymark.cli import screen as wording
from tallymark.cli.main import main
from tallymark.cli.screen import Answer, Grid, Line
from tallymark.model.gate import Severity
from tallymark.model.receipt import Counts
from tallymark.model.report import Outcome, PipelineReport, PlanReport, RunReport


def text_of(answer: Answer) -> str:
    stream = io.StringIO()
    screen.show(answer.blocks, stream)
    return stream.getvalue()


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(words)
    return capsys.readouterr().out


def test_run_tells_what_each_pipeline_did(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in printed(["run"], capsys).splitlines() if "prints on stdout" not in line]
    assert lines == [
        "pipeline       outcome  new files  read  inserted  updated  unchanged  skipped  rejected   time",
        "silver.orders  loaded           2     9         3        1          2        1         2  1.5 s",
        "silver.orders: warning: no unique_key",
        "silver.orders: recorded 1 commit that an earlier run made but did not record",
        "silver.orders: landing/orders/2b.csv has the same content as landing/orders/2.csv: recorded, not loaded",
        "silver.orders: landing/orders/4.csv.part left for the next run: its name ends in .part",
        "silver.orders: 2 bad rows quarantined; to see them: tallymark quarantine show silver.orders",
        "1 pipeline: 1 loaded in 2.5 s",
    ]


def test_a_busy_table_is_no_failure(failed_run: RunReport) -> None:
    report = PipelineReport("silver.orders", "silver.orders", Outcome.BUSY)
    answer = output.run(replace(failed_run, pipelines=(report,)))
    assert answer.exit_code == 0
    assert "another worker is writing this table" in text_of(answer)


def test_what_was_undone_or_is_still_open_is_told(failed_run: RunReport) -> None:
    text = text_of(output.recover(failed_run.pipelines))
    assert "no longer holds 1 batch" in text
    assert "2 batches not committed; the next run retries first: 20261101T101500Z-0000000b, 2026" in text


def test_plan_tells_everything(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(["plan", "--sql"], capsys).splitlines() == [
        "silver.orders → table silver.orders",
        "  files     1: landing/orders/2.csv",
        "            2 more files in later batches",
        "  shape     Merge: upsert: rows are matched by order_id",
        "  write     replace rows: rows change and none go",
        "  rows      3 read: 1 inserted, 1 updated, 1 rejected",
        "  schema    add column discount double",
        "  quality   0 of 1 rules passed",
        "  warning   2 rows of the table share a key",
        "  samples",
        "    insert    order_id=7, status=new",
        "    update    order_id=5, status=new → paid",
        "    delete    order_id=4, status=null",
        "  bad rows  1, to be quarantined by the load",
        '    landing/orders/2.csv row 3, amount: not a decimal(12,2): 8,"x"',
        "  sql",
        "SELECT 1",
    ]


def test_plan_shows_sql_only_when_asked(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "SELECT" not in printed(["plan"], capsys)


def test_a_guard_stops_the_plan_as_it_would_the_load(failed_plan: PlanReport) -> None:
    guarded = replace(failed_plan, failure=None, files=("a",), guards=("deletes 9 of 10 rows",))
    answer = output.plan([guarded], with_sql=False)
    assert answer.exit_code == 1
    assert answer.failure is not None
    assert answer.failure.code == "TM401"
    assert "guard     would stop the load: deletes 9 of 10 rows" in text_of(answer)


def test_an_empty_plan_says_so(failed_plan: PlanReport) -> None:
    answer = output.plan([replace(failed_plan, failure=None)], with_sql=False)
    assert answer.exit_code == 0
    assert "nothing new to load" in text_of(answer)


def test_status_names_what_needs_repair(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(["status"], capsys).splitlines() == [
        "pipeline       table          strategy  committed  failed  batches  last commit",
        "silver.orders  silver.orders  upsert            4       1        3  2026-11-01 12:00:00Z",
        "silver.orders: quality: 0 of 1 rules passed",
        "silver.orders: quality warn: numeric_ranges.amount: 2 rows, such as order_id=5, amount=-1.00",
        "silver.orders: landing/orders/3.csv failed after 3 attempts: truncated gzip",
        "  → fix the cause, then run: tallymark requeue silver.orders",
    ]


def test_a_plan_that_breaks_a_rule_answers_as_the_load_would(
    library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = library.answers["plan"][0]
    gate = replace(plan.quality[0], severity=Severity.ERROR)
    library.answers["plan"] = [replace(plan, quality=(gate,))]
    assert main(["plan"]) == 1
    assert "quality   would stop the load: numeric_ranges.amount: 2 rows" in capsys.readouterr().out
    assert main(["plan", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "TM302"


def test_history_has_a_line_per_batch(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(["history"], capsys).splitlines()
    assert lines[1].split()[:7] == ["b-1", "silver.orders", "committed", "2", "3", "1", "0"]
    assert lines[2].split()[:7] == ["b-2", "silver.orders", "failed", "1", "-", "-", "-"]
    assert "b-2 after 3 attempts: error TM201" in lines[3]


def test_history_tells_of_closed_versions_where_there_are_any(
    library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = library.answers["history"][0]
    receipt = replace(batch.receipt, counts=Counts(inserted=3, closed=2, total=3))
    library.answers["history"] = [replace(batch, receipt=receipt)]
    header, row = [line for line in printed(["history"], capsys).splitlines() if "prints on" not in line]
    assert dict(zip(header.split(), row.split(), strict=False))["closed"] == "2"


def test_long_values_are_cut_and_lines_kept_whole() -> None:
    assert wording.value("x" * 100) == "x" * 59 + "…"
    assert wording.value("a\nb") == "a\\nb"
    assert wording.value(None) == "null"


def test_paths_are_shown_from_where_the_user_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert wording.path(str(tmp_path / "a.csv")) == "a.csv"
    assert wording.path(f"file://{tmp_path}/a.csv") == "a.csv"
    assert wording.path("s3a://bucket/a.csv") == "s3a://bucket/a.csv"


def test_counts_in_words() -> None:
    assert wording.counts_in_words(Counts(inserted=1200, total=1200)) == "1,200 inserted"
    assert wording.counts_in_words(Counts()) == "no rows change"


def test_control_characters_are_shown_not_sent() -> None:
    stream = io.StringIO()
    screen.show([Line("a\x1b[2Jb\x9b"), Grid(("h",), (("x\ny\r",),))], stream)
    assert stream.getvalue() == "a\\x1b[2Jb\\x9b\nh\nx y\\x0d\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_plain_where_the_user_wants_it(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert screen.is_terminal(Terminal())
    monkeypatch.setenv(name, value)
    assert not screen.is_terminal(Terminal())
