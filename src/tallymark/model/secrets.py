"""What must never be shown: values that came from the environment, and passwords inside URLs.

Whoever prints, logs or stores a text that may hold such a value passes it through `redact` first.
"""

from __future__ import annotations

import json
import re
from threading import Lock
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
# A shorter value would blot out half of every text ("1", "eu"), and protects nothing.
SHORTEST_SECRET = 4
SHORTEST_LINE_OF_A_SECRET = 8

# A reference to a variable is no secret: it is what an error shows instead of one.
_URL_PASSWORD = re.compile(r"(://[^\s/:@'\"]*):(?!\$\{[^}\s]*\}@)[^\s/]*@")
_PASSWORD_SETTING = re.compile(r"(?i)(password=)[^\s&;'\"]+")


class Redactor:
    """Replaces the values it was told, in every spelling in which a driver may echo them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._spellings: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def remember(self, value: str) -> None:
        if len(value) < SHORTEST_SECRET:
            return
        with self._lock:
            self._spellings |= _spellings(value)
            # The longest first, so that a secret which holds another one is hidden whole.
            longest_first = sorted(self._spellings, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def redact(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
        return _PASSWORD_SETTING.sub(rf"\1{HIDDEN}", text)


def _spellings(value: str) -> set[str]:
    whole = {
        value,
        value.strip(),
        quote(value, safe=""),
        quote_plus(value),
        unquote(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
    }
    lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE_OF_A_SECRET}
    return {spelling for spelling in whole | lines if len(spelling) >= SHORTEST_SECRET}


_of_this_process = Redactor()


def remember(value: str) -> None:
    """From now on `redact` hides this value."""
    _of_this_process.remember(value)


def redact(text: str) -> str:
    """The text without secrets."""
    return _of_this_process.redact(text)
