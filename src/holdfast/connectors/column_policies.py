"""What to do about a file with columns that were not declared, or without columns that were declared.

The footer of a Parquet file says which columns it has. For a file of JSON lines its first lines are read: JSON leaves
out columns that are NULL, so a column counts as missing if none of these lines has it. Without the check, a column that
the writer renamed would silently be NULL from then on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Literal

from holdfast.connectors.file_access import FileAccess
from holdfast.errors import SchemaError
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.reporting.redaction import logger

OnMissingColumn = Literal["fail", "warn", "null"]
OnExtraColumn = Literal["ignore", "warn", "fail"]

_LOG = logger("holdfast.sources")
_LOOKED_AT = 64 << 10
_LINES = 200


class ColumnPolicies:
    """What to do about missing and extra columns, and the columns for which a warning was logged."""

    def __init__(self, on_missing: OnMissingColumn, on_extra: OnExtraColumn, one_of: tuple[str, ...] = ()) -> None:
        """``one_of``: columns of which a file must have at least one."""
        self._one_of = one_of
        self.on_missing = on_missing
        self.on_extra = on_extra
        self._warned: set[tuple[str, str]] = set()

    @property
    def look(self) -> bool:
        """Whether the columns of a file must be looked at."""
        return bool(self._one_of) or self.on_missing != "null" or self.on_extra != "ignore"

    def check(self, path: str, found: Collection[str], declared: Sequence[str]) -> None:
        """Raise `SchemaError` for missing or extra columns of a file, or log a warning once, as declared."""
        extra = [name for name in found if name not in declared]
        if self._one_of and not set(self._one_of) & set(found):
            needed = " or ".join(map(repr, self._one_of))
            raise SchemaError(
                f"file {path!r}: column {needed} is missing, which says what happened to a row; it has "
                f"{', '.join(sorted(found))}",
                path=path,
                column=self._one_of[0],
            )
        for name in declared:
            if name not in found and self.on_missing != "null":
                hint = did_you_mean(name, extra) or (f"; it has {', '.join(extra)}, undeclared" if extra else "")
                self._say(
                    path, name, self.on_missing, f"column {name!r} is missing{hint}. on_missing='null' takes it as NULL"
                )
        for name in extra:
            if self.on_extra != "ignore":
                self._say(
                    path, name, self.on_extra, f"column {name!r} was not declared; on_extra='ignore' passes it by"
                )

    def _say(self, path: str, name: str, what: str, text: str) -> None:
        if what == "fail":
            raise SchemaError(f"file {path!r}: {text}", path=path, column=name)
        if (name, text) not in self._warned:
            self._warned.add((name, text))
            _LOG.warning("file %r: %s (said once)", path, text, extra={"path": path, "column": name})


def json_columns(path: str, access: FileAccess) -> set[str] | None:
    """The columns in the first lines of a file of JSON lines; None if none of the lines is an object."""
    found: set[str] | None = None
    for line in first_lines(path, access):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            found = (found or set()) | row.keys()
    return found


def first_lines(path: str, access: FileAccess) -> list[bytes]:
    """Some whole lines from the beginning of a file, which may be compressed."""
    with access.unpacked(path) as stream:
        head = stream.read(_LOOKED_AT)
    lines: list[bytes] = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    return lines[: min(_LINES, max(1, len(lines) - (len(head) == _LOOKED_AT)))]
