"""Passwords must not leave the process: not in errors, not in events, not in logs, not in the lake.

A secret is a value, not a word: a password such as `plan` or `3` must not mangle our own sentences. So a text
of our own is searched for places where secrets travel (the password of an address, a setting whose name says
it) and for secrets that nobody writes by chance: those that are not a plain word or number, and the forms
that addresses, quotes and JSON give to any of them. Texts of others (drivers, servers, Java, tracebacks) may
repeat a password, or a part of an address that was written wrongly, in words that nobody here knows. There,
every word of a secret is hidden as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

_HIDDEN = "***"
_SHORTEST_PART = 4
_SHORTEST, _LONGEST = 6, 16
"""Shorter secrets can occur anywhere by chance; longer ones do not, even if they are plain words."""

_SEPARATORS = re.compile(r"[@:/?#\[\]\s&=]")
_WORD = "(?:[a-z]+|[A-Z][a-z]*|[A-Z]+)"
_PLAIN_WORDS = re.compile(rf"{_WORD}(?:[ _.-]{_WORD})*|[0-9]+(?:[.,:-][0-9]+)*")
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/?#\s]*?:([^/?#\s]*)@")
_PASSWORD_SETTING = re.compile(r"password\s*=\s*('(?:\\.|[^'\\])*'|[^\s&]+)", re.IGNORECASE)

_NAMES = (
    r"(?:[\w-]+[._-])*(?:pass(?:word|wd|phrase)?|pwd|secrets?|token|credentials?"
    r"|(?:api|private|access|secret)[._-]?key)"
)
_QUOTED = r"'(?:\\\\|\\'|''|[^'])*'|\"(?:\\\\|\\\"|\"\"|[^\"])*\""
_IN_SETTING = re.compile(
    rf"(?<![\w.-])(?P<name>{_NAMES})(?P<between>=|['\"]\s*:\s*(?=['\"]))"
    rf"(?P<value>{_QUOTED}|[^\s'\"&;,)}}\]]+)",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(
    r"(?P<name>\b[A-Za-z][\w+.-]*://[^\s/?#'\"@:]*)(?P<between>:)(?P<value>[^\s'\"]*)(?=@)"
)
_IN_STATEMENT = re.compile(
    r"(?P<name>\bIDENTIFIED\s+BY|\bPASSWORD)(?P<between>\s+)(?P<value>'[^\n]*'|\"[^\n]*\")", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$\{\w+\}|\*\*\*")


class Secrets:
    """The secrets of a project, and how texts are cleaned of them."""

    def __init__(self, values: Iterable[str]) -> None:
        known = [value for value in values if value]
        texts: set[str] = set()
        parts: set[str] = set()
        for value in known:
            written = set(_written(value))
            texts |= {each for each in (value, *written) if not _is_plain(each)}
            parts |= {value, *written, *_runs(value)}
        self._anywhere = _pattern(texts)
        self._words = _pattern(parts - texts, as_words=True)

    def hide(self, text: str) -> str:
        """One of our own texts without secrets; a plain word that is also a password stays."""
        for place in (_IN_ADDRESS, _IN_SETTING):
            text = place.sub(_without_value, text)
        return self._anywhere.sub(_HIDDEN, text) if self._anywhere else text

    def hide_foreign(self, text: str) -> str:
        """A text from elsewhere, without secrets and without the words that they consist of."""
        text = self.hide(_IN_STATEMENT.sub(_without_value, text))
        return self._words.sub(_HIDDEN, text) if self._words else text

    def hide_error(self, error: BaseException, is_ours: bool) -> str:
        """The first line of an error, one of ours or of a driver's."""
        line = next(iter(str(error).splitlines()), "") or type(error).__name__
        return self.hide(line) if is_ours else self.hide_foreign(line)


def _written(value: str) -> Iterator[str]:
    """A secret as quotes of JSON (also of JSON in JSON), Python and SQL, and addresses write it."""
    for ensure_ascii in (True, False):
        inner = json.dumps(value, ensure_ascii=ensure_ascii)[1:-1]
        yield from (inner, json.dumps(inner, ensure_ascii=ensure_ascii)[1:-1])
    yield from (repr(value)[1:-1], value.replace("'", "''"), value.replace("\\", "\\\\").replace("'", "\\'"))
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield from (encoded, re.sub("%..", lambda match: match[0].lower(), encoded))


def _is_plain(text: str) -> bool:
    """Whether a text could occur in a sentence by chance: words, a number, or hardly anything."""
    return len(text) < _SHORTEST or (len(text) <= _LONGEST and _PLAIN_WORDS.fullmatch(text) is not None)


def _runs(value: str) -> Iterator[str]:
    """The pieces of a secret that was written into an address unescaped: what separators split it into."""
    ends = [-1, *(match.start() for match in _SEPARATORS.finditer(value)), len(value)]
    for first, start in enumerate(ends):
        for end in ends[first + 1 :]:
            if piece := value[start + 1 : end]:
                yield piece


def _pattern(texts: Iterable[str], as_words: bool = False) -> re.Pattern[str] | None:
    """A pattern for any of these texts, the longest first; matches whole words, short ones only in quotes."""
    found: list[str] = []
    for text in sorted(filter(None, texts), key=len, reverse=True):
        exact = re.escape(text)
        if not as_words:
            found.append(exact)
        elif len(text) >= _SHORTEST_PART:
            found.append(rf"(?<!\w){exact}(?!\w)")
        else:
            found.append(rf"(?<=['\"`]){exact}(?=['\"`])|(?<=[=:(] ){exact}(?!\w)|(?<=[=:(]){exact}(?!\w)")
    return re.compile("|".join(found)) if found else None


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if not value or _VARIABLE.fullmatch(value.strip("'\"")):
        return match[0]
    mark = value[0] if value[0] in "'\"" and len(value) > 1 else ""
    return f"{match['name']}{match['between']}{mark}{_HIDDEN}{mark}"


def passwords_in(address: str) -> Iterator[str]:
    """The passwords that an address or a `key=value` setting holds."""
    for match in _PASSWORD_IN_ADDRESS.finditer(address):
        yield unquote(match[1])
        yield match[1]
    for match in _PASSWORD_SETTING.finditer(address):
        yield match[1].strip("'")
