"""Paths with ``*`` and ``?``: which files they mean.

``*`` and ``?`` stay within a name, ``**`` goes through directories, ``[ab]`` is one of these characters. A path that is
there as it is written is no pattern, whatever characters are in it; an address of another filesystem is one if it has
such characters.
"""

from __future__ import annotations

import os
import re

_MAGIC = re.compile(r"[*?\[]")


def split_pattern(path: str) -> tuple[str, re.Pattern[str] | None]:
    """The directory under which the files are that a path means, and what their names behind it must match; None: it is
    no pattern."""
    remote = "://" in path
    absolute = path if remote else os.path.abspath(os.path.expanduser(path))
    if not _MAGIC.search(path) or (not remote and os.path.lexists(absolute)):
        return path, None
    parts = absolute.split("/")
    first = next(place for place, part in enumerate(parts) if _MAGIC.search(part))
    return "/".join(parts[:first]) or "/", re.compile(_translated("/".join(parts[first:])))


def _translated(pattern: str) -> str:
    found, place = "", 0
    while place < len(pattern):
        rest = pattern[place:]
        if rest.startswith("**/"):
            found, place = found + "(?:.*/)?", place + 3
        elif rest.startswith("**"):
            found, place = found + ".*", place + 2
        elif rest[0] in "*?":
            found, place = found + ("[^/]*" if rest[0] == "*" else "[^/]"), place + 1
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            inside = rest[1:end].replace("\\", "\\\\")
            found += f"[^{inside[1:]}]" if inside[0] == "!" else f"[{inside}]"
            place += end + 1
        else:
            found, place = found + re.escape(rest[0]), place + 1
    return found
