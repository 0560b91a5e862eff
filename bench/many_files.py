"""10,000 small files into one table: discovery, commits, and the second run.

.venv/bin/python bench/many_files.py [number of files]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import tallymark as tm
from tallymark.model.report import Event, Step

CONFIG = """
source: {files: 'landing/*.csv'}
columns: [{name: id, type: bigint}, {name: value, type: string}]
merge_strategy: upsert
unique_key: [id]
"""


def main(files: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tallymark.yaml").touch()
        (root / "pipelines/many").mkdir(parents=True)
        (root / "pipelines/many/config.yaml").write_text(CONFIG)
        (root / "landing").mkdir()
        for number in range(files):
            (root / f"landing/{number:06}.csv").write_text(f"id,value\n{number},a\n{number + 1},b\n")
        for label in ("first", "second"):
            measure(root, label)


def measure(root: Path, label: str) -> None:
    marks: dict[Step, float] = {}
    started = time.monotonic()

    def note(event: Event) -> None:
        marks.setdefault(event.step, time.monotonic() - started)

    with tm.Project(root, on_event=note) as project:
        report = project.run().pipelines[0]
    discovered = marks.get(Step.CLAIM, time.monotonic() - started)
    print(f"{label} run: {report.outcome}, {len(report.receipts)} commits, {report.counts.as_dict()}")
    print(f"  discovery and hashing {discovered:.1f} s, whole {time.monotonic() - started:.1f} s")
    for failure in report.failures:
        print(f"  {failure.code} {failure.message}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
