"""The effective settings of a pipeline, and where each one comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pydantic import BaseModel

from tallymark.config.keys import fields_by_key
from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_folders import PROJECT_FILE, Pipeline
from tallymark.config.query_files import TRANSFORM_FILES
from tallymark.config.yaml_file import KeyPath, key_text
from tallymark.model.report import EffectiveSetting, SettingOrigin
from tallymark.model.secrets import redact


def effective_settings(project: LoadedProject, pipeline: Pipeline) -> tuple[EffectiveSetting, ...]:
    """Every setting of the pipeline in the order of the reference. Sections that are absent have none."""
    return tuple(_Reader(project, pipeline).settings(pipeline.config, ()))


# Which key of tallymark.yaml stands in for a key that the pipeline does not give.
_OF_THE_PROJECT: dict[KeyPath, KeyPath] = {
    ("destination",): ("defaults", "destination"),
    ("strict",): ("defaults", "strict"),
}


@dataclass(frozen=True)
class _Reader:
    project: LoadedProject
    pipeline: Pipeline

    def settings(self, section: BaseModel, path: KeyPath) -> Iterator[EffectiveSetting]:
        names = {field.alias or name: name for name, field in type(section).model_fields.items()}
        for key in fields_by_key(type(section)):
            value = getattr(section, names[key])
            yield from self._setting((*path, key), value)

    def _setting(self, path: KeyPath, value: object) -> Iterator[EffectiveSetting]:
        if path == ("vars",):
            value = self.pipeline.variables
        if value is None and path in {("source",), ("cdc",)}:
            return
        if path == ("batch",) and self.pipeline.transform is not None:
            return
        if isinstance(value, BaseModel):
            yield from self.settings(value, path)
        elif isinstance(value, Mapping):
            for name, item in value.items():
                yield from self._setting((*path, str(name)), item)
        else:
            yield self._leaf(path, value)

    def _leaf(self, path: KeyPath, value: object) -> EffectiveSetting:
        place = self.pipeline.origins.get(path)
        if place is not None:
            origin = (
                SettingOrigin.ANNOTATION
                if Path(place.file).name in TRANSFORM_FILES
                else SettingOrigin.PIPELINE
            )
            return EffectiveSetting(key_text(path), plain(value), origin, place.file, place.line)
        in_project = path if path[0] == "vars" else _OF_THE_PROJECT.get(path)
        given = self.project.origins.get(in_project) if in_project else None
        held = plain(self._default(path, value))
        if given is None:
            return EffectiveSetting(key_text(path), held, SettingOrigin.DEFAULT)
        return EffectiveSetting(key_text(path), held, SettingOrigin.PROJECT, PROJECT_FILE, given.line)

    def _default(self, path: KeyPath, value: object) -> object:
        match path:
            case ("destination",):
                return self.pipeline.destination
            case ("table",):
                return self.pipeline.table
            case ("strict",):
                return self.pipeline.settings.strict
            case _:
                return value


def plain(value: object) -> object:
    """As YAML would have it, without secrets."""
    match value:
        case BaseModel():
            return plain(value.model_dump(by_alias=True, exclude_unset=True))
        case Enum():
            return value.value
        case str():
            return redact(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value
