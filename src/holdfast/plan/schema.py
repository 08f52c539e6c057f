"""Schemas: Spark DDL text to fields.

``id long, user string NOT NULL, tags array<struct<a:int>> COMMENT 'x'`` becomes fields whose types are spelled like
Spark's ``simpleString`` (``bigint``, ``array<struct<a:int>>``), so that equal types have equal texts.
The grammar is small and closed, so this module has its own recursive-descent parser.
"""

from __future__ import annotations

import re

from holdfast.errors import SchemaError
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.plan.nodes import Field
from holdfast.plan.types import field_name

_ATOMIC = {
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("tinyint", "byte"), "tinyint"),
    **dict.fromkeys(("smallint", "short"), "smallint"),
    **dict.fromkeys(("int", "integer"), "int"),
    **dict.fromkeys(("bigint", "long"), "bigint"),
    **dict.fromkeys(("float", "real"), "float"),
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_ltz"), "timestamp"),
    "timestamp_ntz": "timestamp_ntz",
    "void": "void",
    "variant": "variant",
}
_DECIMAL = ("decimal", "dec", "numeric")
_NESTED = ("array", "map", "struct")
_UNITS = ("year", "month", "day", "hour", "minute", "second")
RESERVED = ("_diff", "_epoch", "_hash")

_TOKEN = re.compile(
    r"""\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*
    (?: (?P<quoted>`(?:[^`]|``)*`) | (?P<word>\w+) | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<mark>[<>(),:]) | (?P<end>\Z) )""",
    re.VERBOSE | re.DOTALL,
)


def parse_schema(text: str, *, subject: str) -> tuple[Field, ...]:
    """Parse the fields of a DDL text. ``subject`` names the owner of the schema in errors (``source 'orders'``).

    Raises SchemaError."""
    if not isinstance(text, str):
        raise SchemaError(f"{subject}: the schema must be a DDL text, found {type(text).__name__}", schema=text)
    return _Reader(text, subject).fields()


def parse_type(text: str, *, subject: str) -> str:
    """Parse a type and return it as spelled by Spark's ``simpleString``. Raises SchemaError."""
    if not isinstance(text, str):
        raise SchemaError(f"{subject}: the type must be a text such as 'string', found {text!r}", type=text)
    return _Reader(text, subject).only_type()


class _Reader:
    def __init__(self, text: str, subject: str) -> None:
        self.text, self.subject = text, subject
        self.place = 0
        self.tokens = self._tokens()

    def fail(self, what: str, **fields: object) -> SchemaError:
        return SchemaError(f"{self.subject}: schema {self.text.strip()!r}: {what}", schema=self.text, **fields)

    def _tokens(self) -> list[tuple[str, str, int]]:
        tokens, start = [], 0
        while True:
            found = _TOKEN.match(self.text, start)
            if found is None:
                position = start + len(self.text[start:]) - len(self.text[start:].lstrip())
                piece = self.text[position : position + 12]
                raise self.fail(f"cannot read {piece!r} at position {position + 1}", position=position + 1, piece=piece)
            kind = found.lastgroup or "end"
            tokens.append((kind, found.group(kind), found.start(kind)))
            if kind == "end":
                return tokens
            start = found.end()

    def _peek(self) -> str:
        kind, text, _ = self.tokens[self.place]
        return text.lower() if kind in ("word", "mark") else ""

    def _take(self, *expected: str) -> bool:
        """Consume the next token if it is one of these; return whether it was."""
        if self._peek() in expected:
            self.place += 1
            return True
        return False

    def _expect(self, mark: str, after: str) -> None:
        if not self._take(mark):
            raise self._unexpected(f"expected {mark!r} {after}")

    def _unexpected(self, expected: str) -> SchemaError:
        kind, text, start = self.tokens[self.place]
        found = "the end" if kind == "end" else repr(text)
        return self.fail(f"{expected}, found {found} at position {start + 1}", position=start + 1, piece=text)

    def _name(self) -> str:
        kind, text, _ = self.tokens[self.place]
        if kind == "quoted":
            self.place += 1
            return text[1:-1].replace("``", "`")
        if kind == "word":
            self.place += 1
            return text
        raise self._unexpected("expected a column name")

    def only_type(self) -> str:
        found = self._type("the type")
        if self.tokens[self.place][0] != "end":
            raise self._unexpected("expected a type and nothing else")
        return found

    def fields(self) -> tuple[Field, ...]:
        if self.tokens[0][0] == "end":
            raise self.fail("it has no columns; expected something like 'id long, name string'")
        fields: list[Field] = []
        seen: dict[str, str] = {}
        while True:
            name = self._name()
            self._check_name(name, seen)
            self._take(":")
            fields.append(Field(name, self._type(f"column {name!r}")))
            self._decorations()
            if not self._take(","):
                break
        if self.tokens[self.place][0] != "end":
            raise self._unexpected(f"expected ',' after column {name!r}")
        return tuple(fields)

    def _check_name(self, name: str, seen: dict[str, str]) -> None:
        if name == "":
            raise self.fail("a column has an empty name", name=name)
        if name.lower().startswith(RESERVED):
            ours = ", ".join(RESERVED)
            raise self.fail(f"column {name!r} is reserved: names that start with {ours} are Holdfast's own", name=name)
        if (other := seen.get(name.lower())) is not None:
            raise self.fail(f"columns {other!r} and {name!r} have the same name (names ignore case)", name=name)
        seen[name.lower()] = name

    def _decorations(self) -> None:
        while True:
            if self._take("not"):
                self._expect("null", "after NOT")
            elif self._take("comment"):
                if self.tokens[self.place][0] != "string":
                    raise self._unexpected("expected a quoted text after COMMENT")
                self.place += 1
            else:
                return

    def _type(self, of: str) -> str:
        kind, text, start = self.tokens[self.place]
        word = text.lower()
        if kind != "word":
            raise self._unexpected(f"expected a type for {of}")
        self.place += 1
        if word in _DECIMAL:
            return self._decimal(of)
        if word in ("char", "character", "varchar"):
            raise self.fail(f"{of}: type {text!r} is not supported; use string", type=text, position=start + 1)
        if word == "interval":
            return self._interval(of)
        if word == "array":
            self._expect("<", f"after {text!r}")
            element = self._type(f"the elements of {of}")
            self._expect(">", f"after the element type of {of}")
            return f"array<{element}>"
        if word == "map":
            self._expect("<", f"after {text!r}")
            key = self._type(f"the keys of {of}")
            self._expect(",", f"between the key and value types of {of}")
            value = self._type(f"the values of {of}")
            self._expect(">", f"after the value type of {of}")
            return f"map<{key},{value}>"
        if word == "struct":
            return self._struct(of)
        if word in _ATOMIC:
            return _ATOMIC[word]
        hint = did_you_mean(word, (*_ATOMIC, *_DECIMAL, *_NESTED))
        raise self.fail(f"{of}: {text!r} is not a type{hint}", type=text, piece=text, position=start + 1)

    def _number(self, what: str) -> int:
        kind, text, _ = self.tokens[self.place]
        if kind != "word" or not text.isdigit():
            raise self._unexpected(f"expected {what}")
        self.place += 1
        return int(text)

    def _decimal(self, of: str) -> str:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number("the precision of a decimal")
            if self._take(","):
                scale = self._number("the scale of a decimal")
            self._expect(")", "after the precision of a decimal")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self.fail(
                f"{of}: decimal({precision},{scale}) needs 1 <= precision <= 38 and scale <= precision", type="decimal"
            )
        return f"decimal({precision},{scale})"

    def _interval(self, of: str) -> str:
        first = self._peek()
        if not self._take(*_UNITS):
            raise self._unexpected(f"expected a unit after INTERVAL for {of}")
        last = first
        if self._take("to"):
            last = self._peek()
            if not self._take(*_UNITS):
                raise self._unexpected(f"expected a unit after TO for {of}")
        low, high = _UNITS.index(first), _UNITS.index(last)
        if low > high or (low < 2) != (high < 2):
            raise self.fail(f"{of}: there is no type interval {first} to {last}", type="interval")
        return f"interval {first}" if first == last else f"interval {first} to {last}"

    def _struct(self, of: str) -> str:
        self._expect("<", "after 'struct'")
        parts: list[str] = []
        names: set[str] = set()
        while self._peek() != ">":
            name = self._name()
            if name.lower() in names:
                raise self.fail(f"{of}: the struct has field {name!r} twice (names ignore case)", name=name)
            names.add(name.lower())
            self._take(":")
            parts.append(f"{field_name(name)}:{self._type(f'field {name!r} of {of}')}")
            self._decorations()
            if not self._take(","):
                break
        self._expect(">", f"after the fields of {of}")
        return f"struct<{','.join(parts)}>"
