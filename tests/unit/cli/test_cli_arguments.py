from __future__ import annotations

from pathlib import Path

import pytest

from tallymark.cli.arguments import command_name, has_flag, hoist, project_folder


@pytest.mark.parametrize(
    ("typed", "hoisted"),
    [
        (["run", "--json"], ["--json", "run"]),
        (["--json", "run"], ["--json", "run"]),
        (
            ["run", "silver.*", "--project", "shop", "--verbose"],
            ["--project", "shop", "--verbose", "run", "silver.*"],
        ),
        (["run", "--project=shop"], ["--project=shop", "run"]),
        (["requeue", "--file", "a", "p"], ["requeue", "--file", "a", "p"]),
        (["run", "--", "--json"], ["run", "--", "--json"]),
        (["run", "--project"], ["--project"]),
    ],
)
def test_common_options_move_before_the_command(typed: list[str], hoisted: list[str]) -> None:
    assert hoist(typed) == hoisted


def test_a_word_after_two_dashes_is_no_option() -> None:
    assert not has_flag("--json", hoist(["run", "--", "--json"]))
    assert has_flag("--json", hoist(["run", "--json", "--", "x"]))


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["--project", "shop", "run", "silver.orders"], "run"),
        (["--json", "quarantine", "show", "p"], "quarantine show"),
        (["quarantine"], "quarantine"),
        (["--json"], None),
    ],
)
def test_the_document_names_the_command(args: list[str], name: str | None) -> None:
    assert command_name(args) == name


@pytest.mark.parametrize("args", [["--project", "shop", "run"], ["--project=shop", "run"]])
def test_the_log_of_a_crash_finds_the_project(args: list[str]) -> None:
    assert project_folder(args) == Path("shop")
    assert project_folder(["run"]) == project_folder(["--project"]) == Path()
