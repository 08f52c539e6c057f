"""The nearest name: the one that a user who mistyped a name probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate closest to ``name``, ignoring case; None if none is close."""
    spelled = {candidate.lower(): candidate for candidate in candidates}
    close = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return spelled[close[0]] if close else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``; did you mean 'total'?`` with the nearest name; empty if none is close."""
    found = nearest(name, candidates)
    return f"; did you mean {found!r}?" if found is not None else ""
