"""The bill of materials lists what is locked and pinned; Maven and PyPI are not asked."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from tallymark.destinations.registry import spark_needs
from tallymark.spark.jars import AVRO_PACKAGE, pins
from write_components import PAGE, PINS, SBOM, bill, locked, page

ROOT = Path(__file__).parents[2]


def test_it_is_what_is_locked_and_pinned() -> None:
    """Else: make components."""
    listed = {part["purl"] for part in json.loads(SBOM.read_text("utf-8"))["components"]}
    python = {f"pkg:pypi/{name}@{package['version']}" for name, package in locked().items()}
    coordinates = [pin["coordinate"].split(":") for pin in json.loads(PINS.read_text("utf-8")).values()]
    assert listed == python | {f"pkg:maven/{group}/{name}@{version}" for group, name, version in coordinates}


def test_the_files_are_those_that_the_script_writes() -> None:
    assert json.loads(SBOM.read_text("utf-8")) == bill()
    assert PAGE.read_text("utf-8") == page(bill())


def test_every_jar_that_is_named_here_is_pinned() -> None:
    """Else: make components, after a load has fetched it; see `write_components.py --pins`."""
    named = [AVRO_PACKAGE, *(package.coordinate for need in spark_needs() for package in need.packages)]
    for coordinate in named:
        group, artifact, version = coordinate.split(":")
        assert re.fullmatch("[0-9a-f]{64}", pins()[f"{group}_{artifact}-{version}.jar"])


def test_make_installs_a_pinned_uv() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "--require-hashes -r .ci/uv-requirements.txt" in makefile
    first, *hashes = (ROOT / ".ci" / "uv-requirements.txt").read_text("utf-8").splitlines()
    assert re.match(r"uv==\d+\.\d+\.\d+ \\$", first)
    assert all(re.match(r"    --hash=sha256:[0-9a-f]{64}( \\)?$", line) for line in hashes)
    assert tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
