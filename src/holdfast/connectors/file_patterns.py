"""Paths with ``*`` and ``?``: which files they match.

``*`` and ``?`` stay within a name, ``**`` goes through directories, ``[ab]`` is one of these characters. A local path
that exists as it is written is never a pattern, whatever characters it has; an address of another filesystem is a
pattern if it has such characters.
"""

from __future__ import annotations

import os
import re

_MAGIC = re.compile(r"[*?\[]")


def split_pattern(path: str) -> tuple[str, re.Pattern[str] | None]:
    """Split a path into a directory and the pattern that the names of its files, relative to the directory, must match.
    A path that is not a pattern is returned as it is, with None."""
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
