"""The command line as its own process: terminals, pipes, signals, encodings, start-up time."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A library whose `validate` does what the test says, in a process of its own.
PROGRAM = """
import os, sys, types
import tallymark
from tallymark.model.report import Finding
project = types.ModuleType("tallymark.project")
def validate(folder):
    {body}
    return [Finding("subject [bold]", True, "détail → \\x1b[31mred", "")] * {findings}
project.validate = validate
project.init_project = lambda folder, name, with_sample: [f"{{folder}}/{{name}}.yaml"]
sys.modules["tallymark.project"] = tallymark.project = project
from tallymark.cli.main import main
sys.exit(main())
"""


def command(*words: str, body: str = "pass", findings: int = 1) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(body=body, findings=findings), *words]


def on_a_terminal(words: list[str], **environment: str) -> str:
    terminal, inside = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    if "NO_COLOR" not in environment:
        env.pop("NO_COLOR", None)
    with subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, env=env) as process:
        os.close(inside)
        printed = b""
        while chunk := _read(terminal):
            printed += chunk
    os.close(terminal)
    assert process.returncode == 0, printed
    return printed.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side has closed
        return b""


def test_colours_on_a_terminal_only() -> None:
    assert "\x1b[" in on_a_terminal(command("validate"))
    assert "\x1b" not in on_a_terminal(command("validate"), NO_COLOR="1")
    piped = subprocess.run(command("validate"), capture_output=True, check=True)
    assert b"\x1b" not in piped.stdout + piped.stderr


def test_a_value_cannot_steer_the_terminal() -> None:
    printed = on_a_terminal(command("validate"))
    assert "\\x1b[31mred" in printed
    assert "\x1b[31mred" not in printed
    assert "subject [bold]" in printed


def test_init_asks_on_a_terminal(tmp_path: Path) -> None:
    terminal, inside = pty.openpty()
    words = command("init", str(tmp_path))
    wide = {**os.environ, "COLUMNS": "300"}  # so that no path is broken in two
    with subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, env=wide) as process:
        os.close(inside)
        os.write(terminal, b"bookshop\n\n")
        printed = b""
        while chunk := _read(terminal):
            printed += chunk
    os.close(terminal)
    assert process.returncode == 0, printed
    assert b"bookshop.yaml" in printed


def test_what_a_child_process_prints_does_not_spoil_the_document() -> None:
    done = subprocess.run(
        command("validate", "--json", body="os.system('echo from a child')"), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["ok"] is True
    assert b"from a child" in done.stderr


@pytest.mark.parametrize("findings", [30, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("flag", [["--json"], []])
def test_a_reader_that_leaves_is_no_drama(flag: list[str], findings: int) -> None:
    words = command("validate", *flag, findings=findings, body="sys.stdin.read()")
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=buffered) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.close()  # only now it goes on, and prints
        complaint = process.stderr.read()
    assert complaint == b""
    assert process.returncode == 1


@pytest.mark.parametrize("flag", [["--json"], []])
def test_ctrl_c_ends_with_130(flag: list[str]) -> None:
    body = "print('ready', file=sys.stderr, flush=True); __import__('time').sleep(60)"
    words = command("validate", *flag, body=body)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stderr.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        printed, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in complaint
    if flag:
        assert json.loads(printed)["error"]["message"] == "interrupted"


def test_an_ascii_terminal_does_not_fail() -> None:
    done = subprocess.run(
        command("validate"), capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert b"d\\xe9tail" in done.stdout


def test_help_is_quick_and_loads_no_engine() -> None:
    check = (
        "import sys; from tallymark.cli.main import main; main(['--help']);"
        "heavy = {'pyspark', 'sqlalchemy', 'sqlglot', 'rich', 'pyarrow'} & set(sys.modules);"
        "sys.exit(f'{heavy} loaded' if heavy else 0)"
    )
    processor_seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor_seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(processor_seconds) < 0.5


def test_completion_knows_the_pipelines(tmp_path: Path) -> None:
    for name in ("silver/orders", "silver/customers", "gold/revenue"):
        (tmp_path / "pipelines" / name).mkdir(parents=True)
        (tmp_path / "pipelines" / name / "config.yaml").touch()
    (tmp_path / "pipelines/silver/customers/config.yaml").rename(
        tmp_path / "pipelines/silver/customers/pipeline.sql"
    )
    env = {
        **os.environ,
        "_TALLYMARK_COMPLETE": "complete_bash",
        "COMP_WORDS": "tallymark run silver.",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(command(), capture_output=True, env=env, cwd=tmp_path, check=False)
    assert done.stdout.decode().split() == ["silver.customers", "silver.orders"]
