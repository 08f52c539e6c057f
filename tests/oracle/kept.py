"""A view that is run, and compared with Spark's batch result after every epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """``how``: what is kept, in a few words. ``asked``: what Spark is asked instead, where it leaves an answer open."""

    name: str
    sql: str
    how: str
    cost: str
    asked: str = ""
