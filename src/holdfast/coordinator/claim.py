"""The claim of a driver to a log (`log/replica.py` says how claims are written)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Claim:
    """A driver's claim to a log. Of two claims the greater wins."""

    term: int
    owner: str
