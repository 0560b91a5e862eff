"""Reads one YAML file into plain values with their positions, and puts `${VAR}` and `${VAR:-default}` in.

It works on YAML nodes instead of a loaded object. So every key and value keeps its line, a key that is given
twice is noticed, and a file that is built to explode (aliases of aliases) is stopped in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tallymark.errors import ConfigError
from tallymark.model.section import redact, remember

MAX_FILE_BYTES = 256 * 1024  # YAML takes seconds for more than this
MAX_VALUES = 100_000
MAX_DEPTH = 30

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Position:
    line: int
    column: int
    file: str = ""  # empty: the document's own


START = Position(1, 1)


@dataclass
class Document:
    """`data` is what the file says; `positions` has the place of every key and list item."""

    file: str
    readable: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    positions: dict[KeyPath, Position] = field(default_factory=dict)
    # Values as written, before variables were put in: what an error may show.
    written: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    faulty: set[KeyPath] = field(default_factory=set)

    def position(self, path: KeyPath) -> Position:
        """Of the key itself, else of the nearest one around it that is in the file."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, START)

    def report(self, path: KeyPath, message: str, suggestion: str = "", at: Position | None = None) -> None:
        place = at or self.position(path)
        self.faulty.add(path)
        self.problems.append(
            Problem(place.file or self.file, place.line, place.column, key_text(path), message, suggestion)
        )


def read_document(path: Path, name: str, environment: Mapping[str, str]) -> Document:
    """`name` is how problems call the file. What cannot be read at all leaves `data` empty."""
    document = Document(name)
    text = read_text(path, document)
    if text is None:
        return document
    node = _compose(text, document, START)
    if node is None or node.tag == _TAG + "null":
        document.readable = not document.problems
        return document
    document.positions[()] = _position(node, START)
    if not isinstance(node, MappingNode):
        document.report((), f"expected keys and values, found {_kind(node)}", "write it as `key: value`")
        return document
    try:
        document.data = _Converter(document, environment, START).mapping(node, ())
        document.readable = True
    except _TooMuch as too_much:
        document.report(too_much.path, str(too_much))
    return document


def read_value(
    text: str, path: KeyPath, document: Document, environment: Mapping[str, str], origin: Position
) -> object:
    """One value on one line of a larger file, at `origin`: a scalar, or a list or mapping in brackets."""
    node = _compose(text, document, origin, path)
    if isinstance(node, MappingNode) and not node.flow_style:
        hint = "put quotes around a text that holds `: `, and { } around a mapping"
        document.report(path, "a second `:` in the line", hint)
        return None
    if isinstance(node, SequenceNode) and not node.flow_style:
        document.report(path, "a list on one line is written a, b or [a, b]")
        return None
    try:
        return None if node is None else _Converter(document, environment, origin).value(node, path)
    except _TooMuch as too_much:
        document.report(too_much.path, str(too_much))
        return None


def read_text(
    path: Path,
    document: Document,
    max_bytes: int = MAX_FILE_BYTES,
    if_larger: str = "is this a configuration file?",
) -> str | None:
    def whole(message: str, suggestion: str = "") -> None:
        document.report((), message, suggestion, at=Position(0, 0))

    # A named pipe or device would be read for ever.
    if not path.is_file():
        whole("is not a regular file")
        return None
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        whole(f"cannot be read: {error.strerror}", "check its permissions")
        return None
    if len(content) > max_bytes:
        whole(f"is larger than {max_bytes // 1024} KiB", if_larger)
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        document.report((), "is not UTF-8 text", "save the file as UTF-8", at=Position(line, 1))
        return None


def _compose(text: str, document: Document, origin: Position, path: KeyPath = ()) -> Node | None:
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.composer.warn_double_anchors = False  # a filter of warnings would be one of the whole process
        node: Node | None = yaml.compose(text)
        return node
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        lines = text.splitlines()
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        place = _shifted(mark.line, mark.column, origin) if mark else origin
        document.report(path, *_yaml_mistake(str(error.problem or error.context), line), at=place)
    except RecursionError:
        document.report(path, "is nested too deeply", at=origin)
    except Exception as error:
        # The parser lets other errors through on rubbish, such as OverflowError for "\U99999999".
        document.report(path, f"is not YAML ({type(error).__name__})", at=_unprintable(text, origin))
    return None


def _unprintable(text: str, origin: Position) -> Position:
    for number, line in enumerate(text.split("\n")):
        for column, char in enumerate(line):
            if ord(char) < 32 and char not in "\t\r":
                return _shifted(number, column, origin)
    return origin


def _yaml_mistake(problem: str, line: str) -> tuple[str, str]:
    """The parser's words, or plainer ones for the mistakes that people make."""
    if "\\t" in problem or line.startswith("\t"):
        return "a tab; YAML is indented with spaces", ""
    if "another document" in problem:
        return "a second document begins here (---)", "keep one per file"
    if "${" in line and "got '{'" in problem:
        return f"not YAML: {problem}", 'inside { } or [ ] put quotes around it: "${…}"'
    if "mapping values are not allowed" in problem:
        return "a second `:` in the line, or wrong indentation", "put quotes around a text that holds `: `"
    if "cannot start any token" in problem:
        return f"not YAML: {problem}", "put quotes around a text that begins with this"
    if "document start" in problem or "block end" in problem:
        return "wrong indentation", "keys of one level begin in the same column"
    return f"not YAML: {problem}", ""


class _TooMuch(Exception):
    def __init__(self, path: KeyPath, message: str):
        super().__init__(message)
        self.path = path


class _Converter:
    """Nodes to plain values, with variables put in; what is wrong goes into the document's problems."""

    def __init__(self, document: Document, environment: Mapping[str, str], origin: Position):
        self.document = document
        self.environment = environment
        self.origin = origin
        self.values = 0
        self.construct = YAML(typ="safe", pure=True).constructor.construct_object

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            at = (*path, key)
            if key in result:
                first = self.document.positions[at].line
                self.document.report(
                    at, f"given twice; first on line {first}", "keep one", at=_position(key_node, self.origin)
                )
                continue
            self.document.positions[at] = _position(key_node, self.origin)
            result[key] = self.value(value_node, at)
        return result

    def _key(self, node: Node, path: KeyPath) -> str | None:
        place = _position(node, self.origin)
        if not isinstance(node, ScalarNode):
            self.document.report(path, f"a key must be text, found {_kind(node)}", at=place)
            return None
        if node.tag == _TAG + "merge":
            self.document.report(path, "merge keys (<<) are not supported", "write the keys out", at=place)
            return None
        if has_variable(node.value):
            self.document.report(
                (*path, node.value), "variables are put into values, not into keys", at=place
            )
            return None
        return str(node.value)

    def value(self, node: Node, path: KeyPath) -> object:
        self.values += 1
        if self.values > MAX_VALUES:
            raise _TooMuch(path[:1], f"holds more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise _TooMuch(path[:1], "is nested too deeply")
        match node:
            case MappingNode() if node.tag == _TAG + "map":
                return self.mapping(node, path)
            case SequenceNode() if node.tag == _TAG + "seq":
                return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, path)
            case _:
                self._unknown_tag(node, path)
                return None

    def _item(self, node: Node, path: KeyPath) -> object:
        self.document.positions[path] = _position(node, self.origin)
        return self.value(node, path)

    def _scalar(self, node: ScalarNode, path: KeyPath) -> object:
        if node.tag == _TAG + "str":
            return self._text(str(node.value), path)
        if not str(node.tag).startswith(_TAG):
            self._unknown_tag(node, path)
            return None
        try:
            return self.construct(node)
        except Exception:
            # 2026-13-45 looks like a date to YAML and is none; `!!bool x` is a KeyError of the parser.
            kind = str(node.tag).removeprefix(_TAG)
            self.document.report(path, f"{node.value} is not a valid {kind}", "put quotes around a text")
            return node.value

    def _text(self, text: str, path: KeyPath) -> str:
        if not has_variable(text):
            return text
        self.document.written[path] = text
        try:
            return substitute(text, self.environment)
        except VariableError as error:
            self.document.report(path, str(error))
            return text

    def _unknown_tag(self, node: Node, path: KeyPath) -> None:
        tag = str(node.tag).replace(_TAG, "!!")
        self.document.report(
            path, f"the tag {tag} is not supported", "remove it", at=_position(node, self.origin)
        )


def _position(node: Node, origin: Position) -> Position:
    return _shifted(node.start_mark.line, node.start_mark.column, origin)


def _shifted(line: int, column: int, origin: Position) -> Position:
    """A place that is counted from 0, in a text that begins at `origin`."""
    return Position(origin.line + line, column + (origin.column if line == 0 else 1))


def _kind(node: Node) -> str:
    match node:
        case MappingNode():
            return "a mapping"
        case SequenceNode():
            return "a list"
        case _:
            return "a single value"


_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class VariableError(ValueError):
    """The text is fit for the user; it names the variable and never a value."""


def has_variable(text: str) -> bool:
    return "${" in text


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """One pass: what a variable holds is not searched for variables again. `$${` is a literal `${`."""
    return _REFERENCE.sub(lambda found: _value(found, environment), text)


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    if found["inside"] is None:
        return "${"
    if not found["end"]:
        raise VariableError("${ without }; a literal ${ is written $${")
    inside = _INSIDE.fullmatch(found["inside"])
    if inside is None:
        raise VariableError(f"{found[0]} is not a variable; write ${{NAME}} or ${{NAME:-default}}")
    name, default = inside["name"], inside["default"]
    if default is not None and "${" in default:
        raise VariableError(f"the default of ${{{name}}} holds a variable itself; that is not supported")
    value = environment.get(name)
    if value:
        remember(value)
        return value
    if default is not None:
        return str(default)
    if value is None:
        raise VariableError(f"environment variable {name} is not set")
    return value


def overlay(base: Document, top: Document) -> Document:
    """What `top` says wins, key by key; lists are replaced whole. Both are left as they were."""
    data = dict(base.data)
    kept = {path: _in_file(place, base) for path, place in base.positions.items()}
    written = dict(base.written)
    _merge(data, top.data, (), kept, written)
    return Document(
        file=base.file,
        readable=base.readable and top.readable,
        data=data,
        positions=kept | {path: _in_file(place, top) for path, place in top.positions.items()},
        written=written | top.written,
        problems=[*base.problems, *top.problems],
        faulty=base.faulty | top.faulty,
    )


def _merge(
    data: dict[str, Any],
    over: Mapping[str, Any],
    path: KeyPath,
    positions: dict[KeyPath, Position],
    written: dict[KeyPath, str],
) -> None:
    for key, value in over.items():
        at = (*path, key)
        below = data.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            data[key] = dict(below)
            _merge(data[key], value, at, positions, written)
            continue
        data[key] = value
        for known in (positions, written):
            for old in [place for place in known if place[: len(at)] == at]:
                del known[old]


def _in_file(place: Position, document: Document) -> Position:
    return place if place.file else replace(place, file=document.file)


KeyPath = tuple[str | int, ...]
PROBLEMS_IN_A_MESSAGE = 50


@dataclass(frozen=True)
class Problem:
    file: str  # relative to the project
    line: int  # 1-based; 0 when the file as a whole is meant
    column: int
    key: str  # such as source.files or columns[1].type; empty for the file as a whole
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{self.message}; {self.suggestion}" if self.suggestion else self.message
        return redact(": ".join(part for part in (place, self.key, text) if part))

    def as_dict(self) -> dict[str, object]:
        return {
            name: redact(value) if isinstance(value, str) else value for name, value in asdict(self).items()
        }


def config_error(problems: Iterable[Problem]) -> ConfigError:
    """All problems in one error, in the order in which a reader would meet them."""
    found = sorted(set(problems), key=lambda problem: (problem.file.count("/") > 0, *_place(problem)))
    lines = [str(problem) for problem in found[:PROBLEMS_IN_A_MESSAGE]]
    if len(found) > PROBLEMS_IN_A_MESSAGE:
        lines.append(f"… and {len(found) - PROBLEMS_IN_A_MESSAGE} more")
    return ConfigError(
        "\n".join(lines),
        hint="correct this, then run `tallymark validate`",
        facts={"problems": [problem.as_dict() for problem in found]},
    )


def _place(problem: Problem) -> tuple[str, int, int, str]:
    return problem.file, problem.line, problem.column, problem.key


def key_text(path: KeyPath) -> str:
    """`("columns", 1, "type")` as `columns[1].type`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """What was probably meant, without regard to case and to `-` for `_`."""
    by_folded = {_folded(candidate): candidate for candidate in candidates}
    found = get_close_matches(_folded(word), by_folded, n=1, cutoff=0.65)
    if not found and len(word) > 2:
        found = [name for name in by_folded if name.startswith(_folded(word))]
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    meant = closest(word, candidates)
    return f"did you mean {meant}?" if meant else ""


def listed(words: Sequence[str], last: str = "or") -> str:
    """`a, b or c`"""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def _folded(word: str) -> str:
    return word.casefold().replace("-", "_")
