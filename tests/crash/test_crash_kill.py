"""Real processes, killed with SIGKILL at random times, then run to the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from delta_rs import rows_of

KILLS = int(os.environ.get("TALLYMARK_KILLS", "6"))
SEED = int(os.environ.get("TALLYMARK_SEED", str(random.randrange(10**6))))
FILES = 12
CONFIG = """
source: {files: 'landing/*.csv'}
columns: [{name: id, type: bigint}, {name: value, type: bigint}]
merge_strategy: STRATEGY
unique_key: [id]
batch: {max_files: 2}
"""


def run(project: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tallymark.cli.main", "run", "--project", str(project)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.mark.big
@pytest.mark.timeout(1800)
def test_kills_at_random_times_lose_and_double_nothing(tmp_path: Path) -> None:
    print(f"seed {SEED}: repeat with TALLYMARK_SEED={SEED}")
    chance = random.Random(SEED)
    (tmp_path / "tallymark.yaml").write_text("parallel: 2\n")
    for name, strategy in {"appended": "append_only", "merged": "upsert"}.items():
        folder = tmp_path / "pipelines" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(CONFIG.replace("STRATEGY", strategy))
    (tmp_path / "landing").mkdir()
    for number in range(FILES):
        rows = "".join(f"{key},{number}\n" for key in range(number, number + 3))
        (tmp_path / f"landing/{number:02}.csv").write_text("id,value\n" + rows)
    for _ in range(KILLS):
        process = run(tmp_path)
        time.sleep(chance.uniform(3, 40))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert run(tmp_path).wait() == 0
    appended = sorted((row["id"], row["value"]) for row in rows_of(tmp_path / "warehouse/appended"))
    assert appended == sorted((key, n) for n in range(FILES) for key in range(n, n + 3))
    merged = {row["id"]: row["value"] for row in rows_of(tmp_path / "warehouse/merged")}
    assert merged == {key: min(key, FILES - 1) for key in range(FILES + 2)}
