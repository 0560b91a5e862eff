"""Types of Spark SQL, read from text. This is the only parser of them; it needs no Spark.

    parse_type("struct<id:bigint, `unit price` decimal(12,2)>")

`parse_type` reads what a user declares and says what is wrong with it. `stored_type` reads how Spark or a
destination spells the type of a column, and passes through what it does not know.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

_PLAIN = """
    boolean tinyint smallint int bigint float double string binary
    date timestamp timestamp_ntz time variant void
    """.split()  # noqa: SIM905
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
    "timestamp_ltz": "timestamp",
}
_WITH_LENGTH = ("char", "varchar")
_EXAMPLES = {"array": "array<bigint>", "map": "map<string,bigint>", "struct": "struct<a:bigint,b:string>"}
_KNOWN = (*_PLAIN, "decimal", *_WITH_LENGTH, "interval", *_ALIASES, *_EXAMPLES)
_ELSEWHERE = {
    "text": "string",
    "str": "string",
    "object": "string",
    "uuid": "string",
    "bool": "boolean",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "number": "decimal(38,0)",
    "money": "decimal(19,4)",
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "float32": "float",
    "json": "variant",
}  # names of other systems, and what they are in Spark

_MOST_DIGITS = 38
_DEEPEST = 50
_BLANKS = re.compile(r"\s*")
_WORD = re.compile(r"\w+")
_QUOTED_NAME = re.compile(r"`((?:[^`]|``)+)`")
# Spark's own spelling does not quote the names of fields: anything may stand before the colon.
_BARE_NAME = re.compile(r"\s*([^,<>:`]*[^,<>:`\s])\s*:")
_STRING = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
_HAS_COMMENT = re.compile(r"\bcomment\s*['\"]", re.IGNORECASE)
_INTERVAL_UNITS = ("year", "month", "day", "hour", "minute", "second")


class TypeProblem(ValueError):
    """The text is not a type of Spark SQL."""


@dataclass(frozen=True)
class Primitive:
    """`sizes` are precision and scale of a decimal, or the length of a char or varchar."""

    name: str
    sizes: tuple[int, ...] = ()
    collation: str = ""

    @property
    def family(self) -> str:
        """The name, or "string" for every type of text."""
        return "string" if self.name in _WITH_LENGTH else self.name

    def __str__(self) -> str:
        sizes = f"({','.join(map(str, self.sizes))})" if self.sizes else ""
        return f"{self.name}{sizes}{f' collate {self.collation}' if self.collation else ''}"


@dataclass(frozen=True)
class ArrayOf:
    element: SparkType

    @property
    def family(self) -> str:
        return "array"

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class MapOf:
    key: SparkType
    value: SparkType

    @property
    def family(self) -> str:
        return "map"

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class StructMember:
    name: str
    type: SparkType

    def __str__(self) -> str:
        """As Spark spells it, and quoted where that could not be read again."""
        bare = _BARE_NAME.fullmatch(f"{self.name}:")
        is_bare = bare is not None and bare[1] == self.name and not _HAS_COMMENT.search(self.name)
        name = self.name if is_bare else quoted(self.name)
        return f"{name}:{self.type}"


@dataclass(frozen=True)
class StructOf:
    members: tuple[StructMember, ...]

    @property
    def family(self) -> str:
        return "struct"

    def __str__(self) -> str:
        return f"struct<{','.join(map(str, self.members))}>"


@dataclass(frozen=True)
class Unparsed:
    """A type of a stored column that Tallymark does not know."""

    text: str

    @property
    def family(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


SparkType = Primitive | ArrayOf | MapOf | StructOf | Unparsed


def parse_type(text: str) -> SparkType:
    """Raises TypeProblem. Aliases get their usual name; bare `decimal` is Spark's decimal(10,0); comments on
    fields of a struct are dropped."""
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


def stored_type(text: str) -> SparkType:
    """Never raises: what cannot be parsed is Unparsed."""
    try:
        return parse_type(text)
    except TypeProblem:
        return Unparsed(text.strip().lower())


def is_nested(spark_type: SparkType) -> bool:
    match spark_type:
        case ArrayOf() | MapOf() | StructOf():
            return True
        case Unparsed(text=text):
            return text.startswith(tuple(f"{name}<" for name in _EXAMPLES))
        case Primitive():
            return False


class _Parser:
    """Recursive descent over `name`, `name(n[,n])`, `array<t>`, `map<t,t>` and `struct<name:t,…>`."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.at = 0
        self.depth = 0
        self.nested: dict[str, Callable[[], SparkType]] = {
            "array": self.array,
            "map": self.map,
            "struct": self.struct,
        }

    def type(self) -> SparkType:
        if not self.text:
            raise TypeProblem("is empty")
        word = self.word().lower()
        name = _ALIASES.get(word, word)
        if name in self.nested:
            return self.parts(name)
        match name:
            case "string":
                return Primitive(name, collation=self.word() if self.keyword("collate") else "")
            case "decimal":
                return self.decimal()
            case "interval":
                return self.interval()
            case _ if name in _WITH_LENGTH:
                return self.with_length(word, name)
            case _ if name in _PLAIN:
                return Primitive(name)
        raise _unknown(word)

    def parts(self, name: str) -> SparkType:
        if not self.take("<"):
            raise TypeProblem(f"{name} needs its parts, such as {_EXAMPLES[name]}")
        if self.depth == _DEEPEST:
            raise TypeProblem("is nested too deeply")
        self.depth += 1
        found = self.nested[name]()
        self.depth -= 1
        self.expect(">")
        return found

    def array(self) -> ArrayOf:
        return ArrayOf(self.type())

    def map(self) -> MapOf:
        key = self.type()
        self.expect(",")
        return MapOf(key, self.type())

    def struct(self) -> StructOf:
        members = [self.member()]
        while self.take(","):
            members.append(self.member())
        return StructOf(tuple(members))

    def member(self) -> StructMember:
        name = self.member_name()
        found = self.type()
        if self.keyword("not"):
            raise TypeProblem(f"NOT NULL cannot be declared inside a struct (field {name})")
        if self.keyword("comment"):
            self.match(_STRING, "the text of a comment is missing")
        return StructMember(name, found)

    def member_name(self) -> str:
        if self.looks_at("`"):
            quoted = self.match(_QUOTED_NAME, "a name in backticks is not closed")
            self.take(":")
            return quoted[1].replace("``", "`")
        bare = _BARE_NAME.match(self.text, self.at)
        if bare and not _HAS_COMMENT.search(bare[1]):
            self.at = bare.end()
            return bare[1]
        return self.word()  # `struct<a bigint>`, without a colon

    def decimal(self) -> Primitive:
        if not self.take("("):
            return Primitive("decimal", (10, 0))
        precision = self.number()
        scale = self.number() if self.take(",") else 0
        self.expect(")")
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise TypeProblem(
                f"a decimal has a precision from 1 to {_MOST_DIGITS}, and its scale is not larger than that"
            )
        return Primitive("decimal", (precision, scale))

    def with_length(self, word: str, name: str) -> Primitive:
        if not self.take("("):
            raise TypeProblem(f"{word} needs a length; use string, or {word}(20)")
        length = self.number()
        self.expect(")")
        return Primitive(name, (length,))

    def interval(self) -> Primitive:
        """`interval`, `interval day`, `interval day to second`."""
        words = ["interval"]
        if unit := self.keyword(*_INTERVAL_UNITS):
            words.append(unit)
            if self.keyword("to"):
                words += ["to", self.word().lower()]
        return Primitive(" ".join(words))

    def word(self) -> str:
        return self.match(_WORD, f"{self.here()} is misplaced" if self.here() else "a type is missing")[0]

    def number(self) -> int:
        word = self.word()
        if not word.isascii() or not word.isdigit():
            raise TypeProblem(f"{word} is not a number")
        return int(word)

    def keyword(self, *words: str) -> str:
        """The one of these words that comes next, in lower case; empty if none does."""
        self.skip_blanks()
        found = _WORD.match(self.text, self.at)
        if found is None or found[0].lower() not in words:
            return ""
        self.at = found.end()
        return found[0].lower()

    def match(self, pattern: re.Pattern[str], problem: str) -> re.Match[str]:
        self.skip_blanks()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise TypeProblem(problem)
        self.at = found.end()
        return found

    def looks_at(self, symbol: str) -> bool:
        self.skip_blanks()
        return self.text.startswith(symbol, self.at)

    def take(self, symbol: str) -> bool:
        found = self.looks_at(symbol)
        self.at += len(symbol) if found else 0
        return found

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise TypeProblem(f"{symbol} is missing")

    def end(self) -> None:
        if self.here():
            raise TypeProblem(f"{self.here()} is not expected here")

    def here(self) -> str:
        """The next word or symbol; empty at the end."""
        self.skip_blanks()
        found = _WORD.match(self.text, self.at)
        return found[0] if found else self.text[self.at : self.at + 1]

    def skip_blanks(self) -> None:
        blanks = _BLANKS.match(self.text, self.at)
        self.at = blanks.end() if blanks else self.at


def _unknown(word: str) -> TypeProblem:
    close = [_ELSEWHERE[word]] if word in _ELSEWHERE else difflib.get_close_matches(word, _KNOWN, n=1)
    return TypeProblem(f"{word} is not a Spark SQL type{f'; did you mean {close[0]}?' if close else ''}")


# A session's settings change how backslashes and doubled quotes are read, and replace ${name}.
_NEEDS_NO_ESCAPE = re.compile(r"[^\\'$\x00-\x1f\x7f-\x9f\u2028\u2029]*")


def quoted(name: str) -> str:
    """A name in Spark SQL, whatever is in it. Names get their quotes here and nowhere else."""
    return "`" + name.replace("`", "``") + "`"


def quoted_list(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def literal(text: str) -> str:
    if _NEEDS_NO_ESCAPE.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def literals(texts: Iterable[str]) -> str:
    return ", ".join(map(literal, texts))


def options(pairs: Mapping[str, str]) -> str:
    """A map, as functions such as to_json take it."""
    return f"map({literals(text for pair in pairs.items() for text in pair)})"


def named(expression: str, name: str) -> str:
    return f"{expression} AS {quoted(name)}"


def exact_timestamp(moment: datetime) -> str:
    """A literal that means the same in every session time zone, to the microsecond."""
    return f"TIMESTAMP '{moment.astimezone(UTC).isoformat(timespec='microseconds')}'"
