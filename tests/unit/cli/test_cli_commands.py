"""Every command against a library that answers from memory: calls, exit codes, JSON, errors."""

from __future__ import annotations

import csv
import inspect
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tallymark.cli.main import main
from tallymark.errors import ConfigError, GuardTripped
from tallymark.model import section as secrets
from tallymark.model.report import Finding, PlanReport, RunReport

COMMANDS = {
    "run": ["run", "silver.*", "--allow-deletes"],
    "plan": [
        "plan",
        "--sql",
        "--samples",
        "3",
        "gold.revenue",
        "--since",
        "2026-11-01",
        "--until",
        "2026-12-01",
    ],
    "preview": ["preview", "gold.revenue", "--rows", "5", "--explain"],
    "status": ["status"],
    "history": ["history", "silver.orders", "--limit", "7"],
    "requeue": ["requeue", "silver.orders", "--file", "a.csv", "--file", "b.csv"],
    "recover": ["recover"],
    "quarantine list": ["quarantine", "list"],
    "quarantine show": ["quarantine", "show", "silver.orders", "b-1"],
    "quarantine replay": ["quarantine", "replay", "silver.orders"],
    "quarantine drop": ["quarantine", "drop", "silver.orders", "b-1", "--id", "r-1"],
    "config": ["config", "gold.revenue"],
    "graph": ["graph", "+gold.*"],
    "validate": ["validate"],
    "doctor": ["doctor"],
    "prepare": ["prepare"],
    "schema": ["schema"],
    "init": ["init", "shop", "--from", "orders.csv", "--pipeline", "silver.orders", "--key", "a,b"],
}


def document_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    content = json.loads(capsys.readouterr().out)
    assert isinstance(content, dict)
    assert content["tallymark"] == "0.1.0"
    assert content["schema"] == 1
    return content


@pytest.mark.parametrize("name", COMMANDS)
def test_with_json_stdout_is_one_document(
    name: str, library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS[name], "--json"]) == 0
    content = document_of(capsys)
    assert content["command"] == name
    assert content["ok"] is True
    assert content["result"]
    assert "error" not in content


@pytest.mark.parametrize("name", COMMANDS)
def test_when_piped_the_text_is_plain(name: str, library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMMANDS[name]) == 0
    printed = capsys.readouterr()
    assert printed.out
    for text in (printed.out, printed.err):
        assert "\x1b" not in text
        assert not any("─" <= character <= "╿" for character in text)


def test_arguments_reach_the_library(library: Any) -> None:
    for words in COMMANDS.values():
        main(words)
    seen = [call for call in library.calls if call[0] not in ("open", "close")]
    assert seen == [
        ("run", ("silver.*",), {"allow_deletes": True}),
        ("plan", ("gold.revenue",), 3, {"since": "2026-11-01", "until": "2026-12-01"}),
        ("preview", "gold.revenue", 5),
        ("status",),
        ("history", "silver.orders", 7),
        ("requeue", "silver.orders", ["a.csv", "b.csv"]),
        ("recover", ()),
        ("quarantine_list", None),
        ("quarantine_show", "silver.orders", "b-1", 100),
        ("quarantine_replay", "silver.orders", None),
        ("quarantine_drop", "silver.orders", "b-1", ["r-1"]),
        ("settings", "gold.revenue"),
        ("graph", ("+gold.*",)),
        ("validate", Path()),
        ("doctor",),
        ("prepare",),
        ("schemas",),
        ("init_project", Path("shop"), None, ("with_sample", False)),
        ("init_pipeline", Path("shop"), "silver.orders", Path("orders.csv"), None, ("a", "b")),
    ]


def test_the_fake_library_has_the_signatures_of_the_real_one(fake_project: type) -> None:
    from tallymark.project import Project

    for name, method in inspect.getmembers(fake_project, inspect.isfunction):
        if name.startswith("_") and name != "__init__":
            continue
        real = inspect.signature(getattr(Project, name))
        assert list(inspect.signature(method).parameters) == list(real.parameters), name


@pytest.mark.parametrize("words", [["--project", "shop", "status"], ["status", "--project=shop"]])
def test_the_project_is_where_the_user_says(words: list[str], library: Any) -> None:
    main(words)
    assert library.calls[0] == ("open", Path("shop"))
    assert library.calls[-1] == ("close",)


def test_what_a_library_prints_does_not_spoil_the_document(
    library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--json", "run"])
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert "a library that prints on stdout" in printed.err


def test_progress_goes_to_stderr_first_and_last(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run"])
    progress = [line for line in capsys.readouterr().err.splitlines() if "hashing" in line]
    assert progress == ["silver.orders: hashing (1 of 3)", "silver.orders: hashing (3 of 3)"]


def test_a_failed_load_exits_with_1_and_says_why(
    library: Any, failed_run: RunReport, capsys: pytest.CaptureFixture[str]
) -> None:
    library.answers["run"] = failed_run
    assert main(["run"]) == 1
    text = capsys.readouterr().out
    assert "error TM201: landing/orders/3.csv: truncated gzip" in text
    assert "→ repair or remove the file" in text
    assert "held back until the failed file is fixed: landing/items/4.csv" in text
    assert main(["run", "--json"]) == 1
    content = document_of(capsys)
    assert content["ok"] is False
    assert content["error"]["code"] == "TM201"
    assert [pipeline["outcome"] for pipeline in content["result"]["pipelines"]] == ["loaded", "failed"]


def test_a_plan_that_says_the_load_would_fail_exits_with_1(
    library: Any, failed_plan: PlanReport, capsys: pytest.CaptureFixture[str]
) -> None:
    library.answers["plan"] = [failed_plan]
    assert main(["plan", "--json"]) == 1
    assert document_of(capsys)["error"]["code"] == "TM201"


@pytest.mark.parametrize(("command", "code"), [("validate", 2), ("doctor", 1)])
def test_findings_decide_the_exit_code(
    command: str, code: int, library: Any, bad_finding: Finding, capsys: pytest.CaptureFixture[str]
) -> None:
    library.answers[command] = [bad_finding]
    assert main([command]) == code
    text = capsys.readouterr().out
    assert "error  ledger: cannot open .tallymark/ledger.db" in text
    assert "→ make the folder writable" in text


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("bad key", hint="did you mean x?"), 2), (GuardTripped("too many"), 1)]
)
def test_an_error_shows_code_message_and_hint(
    error: ConfigError, code: int, library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    library.fail_with(error)
    assert main(["run"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"error {error.code}: {error.message}" in printed.err
    assert error.hint in printed.err
    assert "Traceback" not in printed.err
    assert main(["run", "--json"]) == code
    assert document_of(capsys)["error"]["message"] == error.message


def test_verbose_adds_the_traceback(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    library.fail_with(ConfigError("bad key"))
    main(["run", "--verbose"])
    assert "Traceback" in capsys.readouterr().err
    main(["run"])
    assert "Traceback" not in capsys.readouterr().err
    assert not logging.getLogger("tallymark").handlers


def test_an_unexpected_exception_is_a_bug_with_a_log_file(
    library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tallymark.yaml").touch()
    secrets.remember("hunter2-of-the-cli")
    library.fail_with(RuntimeError("boom hunter2-of-the-cli"))
    assert main(["run"]) == 1
    printed = capsys.readouterr().err
    assert "this is a bug in Tallymark: RuntimeError: boom ***" in printed
    assert "Traceback" not in printed
    (log,) = Path(".tallymark/logs").iterdir()
    assert str(log) in printed
    assert "Traceback" in log.read_text()
    assert "hunter2-of-the-cli" not in log.read_text()


def test_ctrl_c_exits_with_130(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    library.fail_with(KeyboardInterrupt())
    assert main(["run"]) == 130
    assert "not applied twice" in capsys.readouterr().err
    assert main(["run", "--json"]) == 130
    assert document_of(capsys)["ok"] is False


@pytest.mark.parametrize(
    "words",
    [
        ["rn"],
        [],
        ["run", "--bogus"],
        ["run", "--full-refresh"],
        ["plan", "--since", "2026-11-01"],
        ["preview"],
        ["run", "--project"],
        ["requeue"],
        ["config"],
        ["graph", "--mermaid", "--columns"],
        ["history", "--limit", "x"],
        ["quarantine"],
        ["init", "--pipeline", "silver.x"],
        ["init", "--from", "orders.csv"],
        ["init", "--from", "absent.csv", "--pipeline", "silver.x"],
        ["init", "--from", "orders.csv", "--pipeline", "silver.x", "--strategy", "upser"],
        ["quarantine", "show", "p", "--export", "rows.xlsx"],
    ],
)
def test_wrong_use_exits_with_2(words: list[str], library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err
    assert main(["--json", *words]) == 2
    content = document_of(capsys)
    assert content["ok"] is False
    assert content["error"]["message"]
    assert not library.calls


def test_a_typo_gets_a_suggestion(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["rn"])
    assert "Did you mean 'run'?" in capsys.readouterr().err


def test_secrets_are_never_printed(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    secrets.remember("s3cr3t-of-the-cli")
    library.answers["validate"] = [Finding("ledger", True, "postgresql://u:s3cr3t-of-the-cli@h/db")]
    for words in (["validate"], ["validate", "--json"]):
        main(words)
        printed = capsys.readouterr()
        assert "s3cr3t-of-the-cli" not in printed.out + printed.err
        assert "***" in printed.out


def test_bad_rows_are_exported_as_they_are(library: Any) -> None:
    assert main(["quarantine", "show", "silver.orders", "--export", "out/rows.csv"]) == 0
    with Path("out/rows.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["raw"] == '8,"é\n"'
    assert main(["quarantine", "show", "silver.orders", "--export", "rows.ndjson"]) == 0
    assert json.loads(Path("rows.ndjson").read_text())["raw"] == '8,"é\n"'
    assert [call[3] for call in library.calls if call[0] == "quarantine_show"] == [1_000_000, 1_000_000]


def test_an_export_that_cannot_be_written_is_told(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").touch()
    assert main(["quarantine", "show", "silver.orders", "--export", "taken/rows.csv"]) == 2
    assert "cannot write taken/rows.csv" in capsys.readouterr().err


def test_schemas_are_written_one_per_file(library: Any) -> None:
    assert main(["schema", "--write", "schemas"]) == 0
    assert json.loads(Path("schemas/pipeline.schema.json").read_text()) == {"type": "object"}


def test_init_in_a_project_only_adds_the_pipeline(library: Any) -> None:
    Path("tallymark.yaml").touch()
    assert main(["init", "--from", "orders.csv", "--pipeline", "silver.o", "--strategy", "append_only"]) == 0
    assert library.calls == [("init_pipeline", Path(), "silver.o", Path("orders.csv"), "append_only", ())]


def test_init_finds_the_project_above(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tallymark.yaml").touch()
    Path("landing").mkdir()
    monkeypatch.chdir("landing")
    Path("orders.csv").touch()
    assert main(["init", "--from", "orders.csv", "--pipeline", "silver.o"]) == 0
    assert [call[0] for call in library.calls] == ["init_pipeline"]


def test_help_with_json_is_still_one_document(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help", "--json"]) == 0
    assert document_of(capsys)["ok"] is True


def test_columns_and_diagrams_of_the_graph(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "--columns", "gold.revenue+"]) == 0
    assert library.calls[1] == ("lineage", ("gold.revenue+",))
    assert capsys.readouterr().out.splitlines() == [
        "gold.revenue",
        "  total ← silver.orders.amount",
        "  n ← no column",
        "  code ← code of zone codes/eu",
        "  x ← x of an input whose columns are unknown",
        "  all columns ← all columns of silver.orders",
        "silver.orders",
        "  its columns come from files",
    ]
    assert main(["graph", "--mermaid", "--json"]) == 0
    assert document_of(capsys)["result"]["mermaid"].splitlines() == [
        "flowchart LR",
        '  n0["silver.orders"]',
        '  n1(["gold.revenue"])',
        '  n2{{"gold.scores"}}',
        '  n3[/"orders"/]',
        "  n3 --> n0",
        "  n3 --> n1",
        '  n4[/"codes/eu"/]',
        "  n4 --> n1",
        "  n0 --> n1",
    ]


def test_settings_and_the_graph_as_text(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "gold.revenue"])
    assert capsys.readouterr().out.splitlines() == [
        "setting     value         from",
        'unique_key  ["day"]       pipelines/gold/revenue/pipeline.sql:2',
        "table       gold.revenue  default",
    ]
    main(["graph"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["level", "pipeline", "kind", "reads", "read", "by"],
        ["1", "silver.orders", "files", "zone", "orders", "gold.revenue"],
        [
            "2",
            "gold.revenue",
            "sql",
            "silver.orders,",
            "silver.other,",
            "zone",
            "orders,",
            "zone",
            "codes/eu",
            "-",
        ],
        ["2", "gold.scores", "python", "-", "-"],
    ]
