"""Makes a project that runs, and pipelines in it. Nothing that exists is ever overwritten."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tallymark.config.keys import PIPELINE_SCHEMA, PROJECT_SCHEMA, schema_text, schemas
from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_file import ColumnConfig, Format
from tallymark.config.pipeline_folders import PIPELINE_FILE, PIPELINES_FOLDER, PROJECT_FILE, name_fault
from tallymark.config.yaml_file import closest
from tallymark.destinations.registry import DEFAULT
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy

SCHEMA_FOLDER = ".tallymark/schema"
_EDITOR_LINE = "# yaml-language-server: $schema="

_PROJECT = f"""\
{_EDITOR_LINE}{SCHEMA_FOLDER}/{PROJECT_SCHEMA}
# Every line has a default; what is commented out shows it.
name: {{name}}
# ledger: sqlite:///.tallymark/ledger.db    # or postgresql://user:${{{{PGPASSWORD}}}}@host/db
# spark:
#   master: local[*]                        # spark://…, yarn, k8s://…, or sc://host:15002
#   conf: {{{{spark.driver.memory: 4g}}}}
destinations:
  lake: {{{{type: {DEFAULT.name}, path: warehouse}}}}    # table silver.orders is in warehouse/silver/orders
# defaults: {{{{destination: lake, strict: false}}}}
"""

_SAMPLE_CSV = """\
order_id,customer,amount,updated_at
1,Ada,19.90,2026-11-01T08:15:00
2,Grace,120.00,2026-11-01T09:30:00
3,Edsger,7.45,2026-11-01T11:05:00
"""
_SAMPLE_COLUMNS = (
    ColumnConfig(name="order_id", type="bigint", required=True),
    ColumnConfig(name="amount", type="decimal(12,2)"),
    ColumnConfig(name="updated_at", type="timestamp"),
)

_GITIGNORE = """\
.tallymark/*
!.tallymark/schema/
warehouse/
"""

_README = """\
# {name}
A Tallymark project: files in `landing/` are loaded, once, into the tables that `pipelines/` describes.
`tallymark plan` shows what a load would do; `tallymark run` does it; run it again and nothing changes.
`tallymark status` and `tallymark history` show what was done; `tallymark doctor` finds what is missing.
To load your own files: `tallymark init --from FILE`, then look at the `config.yaml` that it made.
"""


def scaffold_project(folder: Path, name: str, with_sample: bool = True) -> list[Path]:
    """The files it wrote. What was there before is left as it was. The sample is a pipeline with a file."""
    for taken in (folder / PROJECT_FILE, folder / "tallymark.yml"):
        if taken.exists() or taken.is_symlink():
            raise ConfigError(
                f"{taken} exists: this folder is a project already",
                hint="add a pipeline with `tallymark init --from FILE`, or choose another folder",
            )
    texts = {
        **{f"{SCHEMA_FOLDER}/{file}": schema_text(schema) for file, schema in schemas().items()},
        ".gitignore": _GITIGNORE,
        "README.md": _README.format(name=" ".join(name.split())),
        **(_sample_texts() if with_sample else {}),
        # The last, so that an interrupted `init` can be run again.
        PROJECT_FILE: _PROJECT.format(name=_scalar(name)),
    }
    return [folder / path for path, text in texts.items() if _write_new(folder / path, text)]


def _sample_texts() -> dict[str, str]:
    config = _pipeline_text(
        depth=3,
        files="landing/orders/*.csv",
        columns=_SAMPLE_COLUMNS,
        strategy=Strategy.UPSERT,
        unique_key=("order_id",),
        file_format=Format.CSV,
    )
    return {
        "landing/orders/2026-11-01.csv": _SAMPLE_CSV,
        f"{PIPELINES_FOLDER}/silver/orders/{PIPELINE_FILE}": config,
    }


def scaffold_pipeline(
    project: LoadedProject,
    name: str,
    files: str,
    columns: Sequence[ColumnConfig],
    strategy: Strategy,
    unique_key: Sequence[str] = (),
    format: Format | None = None,
    separator: str | None = None,
) -> Path:
    """Writes `config.yaml` of a new pipeline `name` (dotted) and returns its path."""
    parts = name.split(".")
    if fault := name_fault(parts):
        raise ConfigError(
            f"{name} cannot be the name of a pipeline: {fault}", hint="choose one like silver.orders"
        )
    for other in project.pipelines.values():
        if other.table.casefold() == name.casefold():
            raise ConfigError(f"{other.name} writes table {other.table} already", hint="choose another name")
    names = [column.name for column in columns]
    for key in unique_key:
        if names and key.casefold() not in {column.casefold() for column in names}:
            near = closest(key, names)
            raise ConfigError(
                f"unique_key: the file has no column {key}",
                hint=f"did you mean {near}?" if near else "it has " + ", ".join(names),
            )
    path = project.root.joinpath(PIPELINES_FOLDER, *parts, PIPELINE_FILE)
    text = _pipeline_text(
        depth=len(parts) + 1,
        files=files,
        columns=columns,
        strategy=strategy,
        unique_key=unique_key,
        file_format=format,
        separator=separator,
    )
    if not _write_new(path, text):
        raise ConfigError(f"{path} exists already", hint="choose another name, or edit the file")
    return path


def files_like(project: LoadedProject, sample: Path) -> str:
    """The glob of files that lie beside `sample` and end as it does; relative where it is in the project."""
    folder = sample.parent
    if folder.is_relative_to(project.root):
        folder = folder.relative_to(project.root)
    return f"{folder}/*{''.join(sample.suffixes)}"


def _pipeline_text(
    *,
    depth: int,
    files: str,
    columns: Sequence[ColumnConfig],
    strategy: Strategy,
    unique_key: Sequence[str],
    file_format: Format | None,
    separator: str | None = None,
) -> str:
    lines = [
        f"{_EDITOR_LINE}{'../' * depth}{SCHEMA_FOLDER}/{PIPELINE_SCHEMA}",
        "# The pipeline's name is its folder, and so is its table unless `table` says otherwise.",
        "source:",
        f"  files: {_scalar(files)}    # a glob, relative to the project, or a URL",
    ]
    if file_format is not None:
        lines.append(f"  format: {file_format.value}")
    if separator is not None:
        lines.append(f"  options: {{sep: {json.dumps(separator)}}}    # any option of Spark's reader")
    elif file_format is Format.CSV:
        lines.append("  options: {header: true}    # any option of Spark's reader")
    if columns:
        lines.append("columns:    # rename (from), cast, require; what is not named passes through")
        lines += [f"  - {_column(column)}" for column in columns]
    lines.append(f"merge_strategy: {strategy.value}    # `tallymark plan` shows what it would do")
    if unique_key:
        lines.append(f"unique_key: [{', '.join(map(_scalar, unique_key))}]")
    else:
        lines.append("# unique_key: [id]    # the columns that identify a row; upsert and others need it")
    lines.append("# quarantine: {max_fraction: 0.01, max_rows: 1000}    # more bad rows fail the batch")
    return "\n".join(lines) + "\n"


def _column(column: ColumnConfig) -> str:
    facts = {"from": column.source, "name": column.name, "type": column.type, "format": column.format}
    parts = [f"{key}: {_scalar(value)}" for key, value in facts.items() if value is not None]
    return f"{{{', '.join([*parts, 'required: true'] if column.required else parts)}}}"


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./*-]*")


def _scalar(text: str) -> str:
    """The text in YAML, in quotes where it would mean something else without them."""
    text = text.replace("${", "$${")
    if _PLAIN.fullmatch(text) and text.casefold() not in {"true", "false", "null", "yes", "no", "on", "off"}:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _write_new(path: Path, text: str) -> bool:
    """False when something is there already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        if path.parent.is_dir():
            return False
        raise ConfigError(f"{path.parent} is not a folder", hint="choose another folder") from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="check the folder's permissions"
        ) from None
    return True
