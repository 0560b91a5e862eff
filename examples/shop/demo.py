"""A small shop, loaded day by day, and then once more to see that nothing changes.

make demo            builds the project in .demo/shop and runs it
demo.py FOLDER       does so elsewhere
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from deliveries import DAYS, deliver

from tallymark.cli import output, screen
from tallymark.cli.screen import Answer, Line, Tone
from tallymark.model.report import Outcome, RunReport
from tallymark.project import Project

HERE = Path(__file__).resolve().parent
DEFAULT_FOLDER = HERE.parents[1] / ".demo" / "shop"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    started = time.monotonic()
    build(folder)
    say("A shop with seven pipelines. Four load files: a config.yaml says where they come from and how")
    say("their rows are merged into a table. Three are made of those tables: two by SQL, one by Python.")
    for pipeline in sorted(folder.glob("pipelines/*/*/*.*")):
        say(f"  {shown(pipeline)}")
    say("Spark starts now; the first start fetches its libraries and may take a minute.")
    with Project(folder) as project:
        command("graph", output.graph(project.graph(), as_mermaid=False))
        load_three_days(project, folder)
        unchanged = load_again(project, folder)
        show_quarantine(project)
    where_to_look(folder, time.monotonic() - started)
    return 0 if unchanged else 1


def build(folder: Path) -> None:
    """Only a folder that this demo made is removed."""
    if folder.exists() and not (folder / "tallymark.yaml").is_file():
        sys.exit(f"{folder} exists and is not the demo's: remove it, or name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "project", folder)


def load_three_days(project: Project, folder: Path) -> None:
    for day in DAYS:
        title(f"{day}: the shop delivers")
        for path in deliver(folder / "landing", day):
            say(f"  {shown(path)}")
        if day == DAYS[1]:
            say("What would the orders do to the table? `plan` says so and writes nothing.")
            command("plan silver.orders", output.plan(project.plan("silver.orders"), with_sql=False))
        command("run", output.run(expect_success(project.run())))


def expect_success(report: RunReport) -> RunReport:
    if not report.ok:
        command("run", output.run(report))
        sys.exit("a load of the demo failed: see above")
    return report


def load_again(project: Project, folder: Path) -> bool:
    title("Everything once more: nothing may change")
    before = table_versions(folder)
    report = expect_success(project.run())
    command("run", output.run(report))
    after = table_versions(folder)
    read = sum(pipeline.counts.total for pipeline in report.pipelines)
    idle = all(pipeline.outcome is Outcome.NOTHING_NEW for pipeline in report.pipelines)
    if before == after and read == 0 and idle:
        say(f"Checked in the tables' own logs: 0 rows, 0 new commits in {len(after)} tables.", Tone.GOOD)
        return True
    changed = [name for name in after if after[name] != before.get(name)]
    say(f"The second run was not empty: {read} rows read, new commits in {changed}", Tone.BAD)
    return False


def table_versions(folder: Path) -> dict[str, int]:
    """The last commit of every Delta table, read from its log and not asked of Tallymark."""
    warehouse = folder / "warehouse"
    return {
        str(log.parent.relative_to(warehouse)): max(int(commit.stem) for commit in log.glob("[0-9]*.json"))
        for log in sorted(warehouse.glob("**/_delta_log"))
    }


def show_quarantine(project: Project) -> None:
    title("The bad rows: kept aside with file, row and reason, never lost")
    command("quarantine list", output.quarantine_list(project.quarantine_list()))
    rows = project.quarantine_show("silver.orders")
    command("quarantine show silver.orders", output.quarantine_show(rows, "silver.orders", limit=100))


def where_to_look(folder: Path, seconds: float) -> None:
    title(f"Done in {seconds:.0f} seconds. Where to look next")
    say("  . .venv/bin/activate")
    say(f"  cd {shown(folder)}")
    say("  tallymark status     every pipeline and its files")
    say("  tallymark history    every batch and what it did")
    say("  Put a file of your own into landing/orders/ and call tallymark plan, then tallymark run.")
    say("  docs/tutorial/first-load.md: your own CSV into a table in five minutes.")


def title(text: str) -> None:
    screen.show([Line(""), Line(f"== {text}", Tone.HEADING)], sys.stdout)


def say(text: str, tone: Tone = Tone.PLAIN) -> None:
    screen.show([Line(text, tone)], sys.stdout)


def command(words: str, answer: Answer) -> None:
    """What this command prints when it is typed."""
    screen.show([Line(f"$ tallymark {words}", Tone.DIM), *answer.blocks], sys.stdout)


def shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
