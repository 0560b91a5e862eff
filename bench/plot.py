"""Draws the figures of `make bench`. Runs where matplotlib is, and prints the names of the plots it made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

matplotlib.rcParams["svg.hashsalt"] = "tallymark"  # the same figures give the same file


def main(figures_file: Path, folder: Path) -> None:
    figures = json.loads(figures_file.read_text("utf-8"))
    if figures.get("scenarios"):
        ratios(figures["scenarios"], folder / "ratios.svg")
    for what, sides in figures.get("growth", {}).items():
        growth(what, sides, folder / f"by-{what.replace(' ', '-')}.svg")
    if figures.get("known_files"):
        growth("known files", known_files(figures["known_files"]), folder / "by-known-files.svg", "seconds")


def ratios(scenarios: dict, file: Path) -> None:
    lines = [
        (f"{name}\nagainst {bound['against']}", bound["ratio"], bound["at_most"])
        for name, found in scenarios.items()
        for bound in found["bounds"]
        if bound["ratio"] is not None
    ][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.55 * len(lines) + 1))
    axes.barh([name for name, _, _ in lines], [ratio for _, ratio, _ in lines], color="#3b7dd8")
    for at, (_, _, at_most) in enumerate(lines):
        axes.plot([at_most, at_most], [at - 0.4, at + 0.4], color="#c0392b", linewidth=2)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("time of Tallymark, the other side = 1 (red: at most)")
    save(figure, file)


def known_files(found: dict) -> dict:
    parts = {"nothing_new": "run with nothing new", "all_there": "discovery of 100 new"}
    return {
        told: {known: one[part]["seconds"] for known, one in found.items()} for part, told in parts.items()
    }


def growth(what: str, sides: dict, file: Path, measured: str = "seconds of one batch") -> None:
    figure, axes = plt.subplots(figsize=(6, 3.5))
    for side, points in sides.items():
        sizes = sorted(int(size) for size in points)
        axes.plot(sizes, [points[str(size)] for size in sizes], marker="o", label=side)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(what)
    axes.set_ylabel(measured)
    axes.legend()
    save(figure, file)


def save(figure: plt.Figure, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    print(file.stem)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
