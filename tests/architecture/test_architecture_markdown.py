"""Every link from one of our Markdown files to another, and to a heading in it, leads somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"(?ms)^(```|~~~).*?^\1|`[^`\n]*`")


def pages() -> list[Path]:
    # What git does not know and what it ignores is not ours: caches and environments hold pages too.
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).exists()]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"(?m)^#+\s+(.+?)\s*$", re.sub(r"(?ms)^(```|~~~).*?^\1", "", page.read_text()))
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_markdown_links_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):  # the web is not ours to test
            continue
        path, _, heading = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or (heading and other.suffix == ".md" and heading not in anchors(other)):
            broken.append(target)
    assert broken == []
