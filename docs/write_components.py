"""Writes what Tallymark is made of: a bill of materials (CycloneDX) and the list of licences.

    python docs/write_components.py          from uv.lock, the installed packages and jar_pins.json
    python docs/write_components.py --pins   first jar_pins.json, from the JARs that Ivy has downloaded

`--pins` compares each JAR with the checksum that Maven Central gives for it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from hashlib import sha1, sha256
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tallymark.spark import jars

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "uv.lock"
PINS = ROOT / "src" / "tallymark" / "spark" / "jar_pins.json"
SBOM = ROOT / "docs" / "reference" / "sbom.cdx.json"
PAGE = ROOT / "docs" / "reference" / "components.md"
MAVEN = "https://repo1.maven.org/maven2"

# Packages of other platforms, which are not installed where this runs.
_NOT_INSTALLED = {"colorama": "BSD-3-Clause", "tzdata": "Apache-2.0"}
_SPDX = (
    ("Apache", "Apache-2.0"),
    ("ISC", "ISC"),
    ("MIT", "MIT"),
    ("3-Clause", "BSD-3-Clause"),
    ("2-Clause", "BSD-2-Clause"),
    ("BSD", "BSD-3-Clause"),
    ("PSF", "PSF-2.0"),
    ("Python Software", "PSF-2.0"),
    ("Mozilla", "MPL-2.0"),
    ("MPL", "MPL-2.0"),
    ("LGPL", "LGPL-3.0-only"),
    ("Lesser General", "LGPL-3.0-only"),
    ("GPL", "GPL-2.0-only WITH Classpath-exception-2.0"),
)


def locked() -> dict[str, dict[str, Any]]:
    """Every package that an installation with all extras has, by name, as uv.lock has it."""
    packages = {package["name"]: package for package in tomllib.loads(LOCK.read_text("utf-8"))["package"]}
    own = packages["tallymark"]
    found: dict[str, dict[str, Any]] = {}
    waiting = [*own["dependencies"], *(d for extra in own["optional-dependencies"].values() for d in extra)]
    while waiting:
        wanted = waiting.pop()
        package = packages[wanted["name"]]
        extras = package.get("optional-dependencies", {})
        waiting += [d for extra in wanted.get("extra", ()) for d in extras.get(extra, ())]
        if package["name"] not in found:
            found[package["name"]] = package
            waiting += package.get("dependencies", [])
    return dict(sorted(found.items()))


def licence_of(name: str) -> str:
    if name in _NOT_INSTALLED:
        return _NOT_INSTALLED[name]
    about = metadata.metadata(name)
    if "License-Expression" in about:
        return about["License-Expression"]
    told = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or [] if c.startswith("License")]
    first_line = "" if told else about["License"].strip().partition("\n")[0]
    return _spdx(" ".join(told) or first_line, name)


def _spdx(told: str, name: str) -> str:
    for word, licence in _SPDX:
        if word.lower() in told.lower():
            return licence
    raise SystemExit(f"{name}: the licence {told!r} has no SPDX name here: add it to _SPDX")


def bill() -> dict[str, Any]:
    """Without time and serial number, so that the same components give the same file."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "tallymark",
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [*_python(), *_java()],
    }


def _python() -> Iterator[dict[str, Any]]:
    for name, package in locked().items():
        version = package["version"]
        archive = package.get("sdist") or package["wheels"][0]
        yield _component(name, version, f"pkg:pypi/{name}@{version}", archive["hash"], licence_of(name))


def _java() -> Iterator[dict[str, Any]]:
    for pin in json.loads(PINS.read_text("utf-8")).values():
        group, artifact, version = pin["coordinate"].split(":")
        purl = f"pkg:maven/{group}/{artifact}@{version}"
        yield _component(f"{group}:{artifact}", version, purl, pin["sha256"], pin["licence"])


def _component(name: str, version: str, purl: str, checksum: str, licence: str) -> dict[str, Any]:
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": checksum.removeprefix("sha256:")}],
        "licenses": [{"expression": licence}],
    }


def page(sbom: Mapping[str, Any]) -> str:
    rows = [
        f"| {'JAR' if part['purl'].startswith('pkg:maven') else 'Python'} | {part['name']} "
        f"| {part['version']} | {part['licenses'][0]['expression']} |"
        for part in sbom["components"]
    ]
    return "\n".join(
        [
            "# Components and licences",
            "",
            "What an installation with all extras is made of, and the JARs that Tallymark names itself or "
            "that these need. `make components` writes this page and the same as a bill of materials, "
            "[sbom.cdx.json](sbom.cdx.json) (CycloneDX 1.6). Spark's own JARs come inside the package "
            "`pyspark`, with their licences.",
            "",
            "| kind | name | version | licence |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def write_pins(ivy: Path) -> None:
    """Of the JARs in this folder of Ivy."""
    pinned = {}
    for jar in sorted((ivy / "cache").glob("*/*/*/*.jar")):
        group, artifact = jar.parts[-4], jar.parts[-3]
        version = jar.stem.removeprefix(f"{artifact}-")
        content = jar.read_bytes()
        url = f"{MAVEN}/{group.replace('.', '/')}/{artifact}/{version}/{jar.name}.sha1"
        with urlopen(url, timeout=60) as answer:  # noqa: S310  a constant address
            published = answer.read().decode().split()[0]
        if sha1(content).hexdigest() != published:  # noqa: S324  what Maven Central publishes
            raise SystemExit(f"{jar}: its SHA-1 is not the one that Maven Central gives: {published}")
        about = (jar.parent.parent / f"ivy-{version}.xml").read_text("utf-8")
        named = re.search(r'<license name="([^"]+)"', about)
        pinned[f"{group}_{artifact}-{version}.jar"] = {
            "coordinate": f"{group}:{artifact}:{version}",
            "sha256": sha256(content).hexdigest(),
            "licence": _spdx(named[1] if named else "", artifact),
        }
    PINS.write_text(json.dumps(pinned, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    if "--pins" in sys.argv:
        folder = jars.default_ivy_folder()
        assert folder is not None, "there is no home folder, so no folder of Ivy's"  # noqa: S101
        write_pins(folder)
    made = bill()
    SBOM.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(made), "utf-8")
