"""A number with its noun, for lines that people read."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 epoch``, ``2 epochs``, ``1,000 epochs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
