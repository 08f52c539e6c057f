"""Redaction: no credential is printed, logged or raised.

Everything that leaves Holdfast as text passes through this module: errors (the base class in ``errors.py``), loggers
(`logger`), addresses in ``repr`` and ``status`` (`shown`), and the output of the command line.

Two rules find credentials in a text. First, *known* secrets: code that is given an address or a credential calls
`learn`, and from then on its text, in every spelling that a URL can have, is replaced wherever it occurs. That covers
messages of other libraries. Second, *patterns*: the user part of an address (``scheme://user:password@host``), query
parameters whose names suggest a secret, and Authorization headers. That covers addresses that were never declared.

An address is shown with its host, its path, and the query parameters that are known to be harmless (`_HARMLESS`). Any
other parameter is left out: it may be a token under an unknown name.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "…"

_SHORTEST = 4
"""The least length of a secret that is searched for in other texts. A shorter one is only hidden in its address: words
contain it by chance."""

_SHORTEST_NAME = 8
"""The same for the value of a parameter that may be no secret at all."""

_SHORTEST_USER = 16
"""The same for a user's name: names are ordinary words, ids of access keys are long."""

_HARMLESS = frozenset(
    (
        *("allow_bucket_creation", "allow_bucket_deletion", "endpoint_override", "endpoint_url", "region", "scheme"),
        *("block_size", "buffer_size", "default_block_size", "force_virtual_addressing", "replication", "timeout"),
    )
)

_NAMES = r"[\w.%-]*(?:secret|token|passw|pwd|sig|sas|credential|auth|delegation|key|ticket|session)[\w.%-]*"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_PARAMETER = re.compile(rf"(?<=[?&;])({_NAMES}=)[^&;\s'\"]+", re.IGNORECASE)
_HEADER = re.compile(
    r"\b(authorization\W{1,4}|bearer\s+|basic\s+(?=[\w+/]{12}))((?:bearer|basic)\s+)?[^\s'\",]+", re.IGNORECASE
)
_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]+:/{1,3}[^\s'\"<>]+")
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.:-]+?):(?P<slashes>/+)(?P<rest>.*)", re.DOTALL)
_HOST = r"(?:[^:@,\[\]]*|\[[0-9A-Fa-f:.]*\])(?::\d{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")


@dataclass(frozen=True)
class Address:
    """A parsed address: the part that may be shown, and the secrets in it."""

    shown: str
    """The address without its secrets."""

    secrets: tuple[str, ...]
    """The parts that were left out and are searched for in other texts, as they were written."""

    ambiguous: bool
    """Whether a credential in the address has a character that ends a part of a URL (``/``, ``?``, ``#``, ``@``)."""


def parse(address: str) -> Address:
    """Parse an address. If it can be read in two ways, take the reading that hides more."""
    found = _PARTS.fullmatch(address)
    if found is None:
        return Address(address, (), False)
    rest, secrets, ambiguous = found["rest"], list[str](), False
    if (split := _split(rest)) is not None:
        whole, rest, ambiguous = split
        name, _, password = whole.partition(":")
        least = _SHORTEST if "@" in found["rest"] else _SHORTEST_NAME  # without an @ it may be a mistyped port
        secrets += [each for each in (whole, password) if len(each) >= least]
        secrets += [name] if len(name) >= _SHORTEST_USER else []
    place, mark, query = rest.partition("?")
    kept = []
    for pair in _pairs(query) if mark else ():
        name, _, value = pair.partition("=")
        if name in _HARMLESS:
            kept.append(f"{name}={redact(unquote_plus(value))}")
            continue
        least = _SHORTEST if _SECRET_NAME.search(name) else _SHORTEST_NAME
        secrets += [each for each in (value or name,) if len(each) >= least]
    shown = f"{found['scheme']}:{found['slashes']}{place.partition('#')[0]}" + (f"?{'&'.join(kept)}" if kept else "")
    return Address(shown, tuple(secrets), ambiguous)


def _pairs(query: str) -> list[str]:
    """Return the parameters of a query. A piece without a name belongs to the parameter before it, which is then a
    secret with a ``&`` in it."""
    pairs: list[str] = []
    for piece in re.split("(?<=.)[&;]", query):
        if pairs and "=" not in piece and pairs[-1].partition("=")[0] not in _HARMLESS:
            pairs[-1] += "&" + piece
        else:
            pairs.append(piece)
    return pairs


def _split(rest: str) -> tuple[str, str, bool] | None:
    """Split the text after ``scheme://`` into the user with a password, the rest, and whether that is ambiguous. Return
    None if there is no password. A user alone is no credential: it may be the container of a storage account."""
    authority = re.match(r"[^/?#]*", rest)[0]  # type: ignore[index]  # it matches always
    user, at, _ = authority.rpartition("@")
    if (at and ":" not in user) or (not at and _HOSTS.fullmatch(authority)):
        return None
    whole, at, behind = rest.rpartition("@")
    if not at:  # nothing says where the credential ends
        return authority, rest[len(authority) :], True
    return whole, behind, whole != user


def shown(place: object) -> str:
    """Return a path, an address, or any other place as text without credentials. The credentials in it are learned
    (`learn`)."""
    text = str(place)
    if _PARTS.fullmatch(text) is None:
        return redact(text)
    address = parse(text)
    learn(*address.secrets)
    return address.shown


# -- options of readers -----------------------------------------------------------------------------------------------

_CREDENTIAL = re.compile(
    r"\w*(?:secret|token|passw\w*|pwd|credential|key)s?|keytab|sas|sig|signature|delegation|ticket|o?auth\d?|authorization"
    r"|user|username|uid",
    re.IGNORECASE,
)
"""Matches a whole word of an option's name. Parts of words, as in `_NAMES`, would find ``sas`` in
``primitivesAsString``."""

_WORD = re.compile(r"[A-Z]*[a-z\d]+|[A-Z]+")
_LOGIN = re.compile(r"(://|^jdbc:oracle:\w+:)(?:[^/@?;:]*[:/][^/?;]*)?@")
_SETTING = re.compile(r"(?<=[?&;:])([\w.%-]+)=[^&;]*")


def without_credentials(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a reader without credentials: options whose names say so, and logins inside addresses.

    The result is for comparing two readers: every option that changes what is read stays, and secrets that this process
    has learned (`learn`) make no difference. Texts that the user wrote (a query) stay whole.
    """
    return {
        name: _without_login(value) if name.lower() == "url" or _ADDRESS.fullmatch(value) else value
        for name, value in options.items()
        if not _is_credential(name)
    }


def _is_credential(name: str) -> bool:
    return any(map(_CREDENTIAL.fullmatch, _WORD.findall(name)))


def _without_login(address: str) -> str:
    address = _LOGIN.sub(r"\1", address)
    return _SETTING.sub(lambda found: "" if _is_credential(found[1]) else found[0], address)


# -- known secrets ----------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_known: set[str] = set()
_pattern: re.Pattern[str] | None = None


def learn(*secrets: str) -> None:
    """Remember these texts as secrets, in all their spellings: from now on `redact` hides them in every text."""
    global _pattern
    spelled = set()
    for text in secrets:
        for plain in (text, unquote(text), unquote_plus(text)):
            spelled |= {plain, quote(plain), quote(plain, safe=""), quote_plus(plain), repr(plain)[1:-1]}
    spelled = {each for each in spelled if len(each) >= _SHORTEST}
    with _lock:
        if not spelled <= _known:
            _known.update(spelled)
            longest_first = sorted(_known, key=lambda each: (-len(each), each))
            _pattern = re.compile("|".join(map(re.escape, longest_first)))


def redact(text: str) -> str:
    """Return ``text`` without credentials."""
    pattern = _pattern
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    if "/" in text or "=" in text:
        text = _ADDRESS.sub(_without_user, text)
        text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    return _HEADER.sub(lambda found: f"{found[1]}{found[2] or ''}{HIDDEN}", text)


def _without_user(found: re.Match[str]) -> str:
    """Return an address that was found inside a text, without its user part. Its parameters stay, because the text was
    never declared as an address."""
    parts = _PARTS.fullmatch(found[0])
    if parts is None or "@" not in parts["rest"] or (split := _split(parts["rest"])) is None:
        return found[0]
    return f"{parts['scheme']}:{parts['slashes']}{HIDDEN}@{split[1]}"


def redacted(value: Any) -> Any:
    """Return a value with every text in it redacted, also inside dictionaries, lists, tuples and sets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping) and type(value) is dict:
        return {redacted(key): redacted(item) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        items: Iterable[Any] = value
        return type(value)(redacted(item) for item in items)
    return value


# -- errors and log records -------------------------------------------------------------------------------------------


class Redacted(Exception):
    """The error of another library, without the credentials that its text had."""


def cause(error: BaseException) -> BaseException:
    """Return ``error`` as the cause of one of Holdfast's errors: ``error`` itself if Python would print no secret of
    it, otherwise a `Redacted` with its text."""
    said = "".join(traceback.format_exception(error))
    if redact(said) == said:
        return error
    return Redacted(redact(f"{type(error).__name__}: {error}")).with_traceback(error.__traceback__)


_OF_PYTHON = frozenset(vars(logging.makeLogRecord({})))
"""The attributes that every log record has; all others are fields that came by ``extra``."""


class _Redacting(logging.Filter):
    """Redacts a record, its fields included, before any handler sees it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.DEBUG:
            return False  # below DEBUG kazoo logs the passwords of its sessions
        record.msg, record.args = redact(record.getMessage()), ()
        for field in vars(record).keys() - _OF_PYTHON:
            setattr(record, field, redacted(getattr(record, field)))
        if record.exc_info and record.exc_info[1] is not None:
            text = redact("".join(traceback.format_exception(record.exc_info[1]))).rstrip()
            record.exc_info, record.exc_text = None, text
        return True


_redacting = _Redacting()


def logger(name: str) -> logging.Logger:
    """Return the logger of that name, which redacts its records. Events that a person should know of are logged as
    warnings, which Python prints on stderr in a program that does not set up logging. Details are in the fields of the
    record (``extra``)."""
    found = logging.getLogger(name)
    found.addFilter(_redacting)  # adding the same filter again has no effect
    return found
