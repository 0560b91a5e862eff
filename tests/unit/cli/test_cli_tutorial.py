"""The tutorial, typed as it is written: every command runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial" / "first-load.md"
STEP = re.compile(r"^```sh\n(.*?)^```(?:(?:(?!^```).)*?^```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
PLAN_THAT_WOULD_FAIL = "tuesday.csv"


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    folder = tmp_path
    steps = STEP.findall(TUTORIAL.read_text(encoding="utf-8"))
    assert len(steps) >= 6
    for commands, shown in steps:
        done = subprocess.run(
            ["bash", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        expected = 1 if PLAN_THAT_WOULD_FAIL in commands else 0
        assert done.returncode == expected, f"{commands}\n{done.stdout}\n{done.stderr}"
        assert shown.strip() in done.stdout, f"{commands}\n{done.stdout}"
        if "cd bookshop" in commands:
            folder = tmp_path / "bookshop"
