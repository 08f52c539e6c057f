"""Waiting for storage, before an edited view is used: what `coordinator/view_edits.py` says must be safe first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import StoreError
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.replication import Replication

_FORMER_SAFE = 60.0
"""So many seconds an edited view waits until its rows as they were are safe."""


def secure_former(
    flow: str, delivery: Delivery, durability: Replication, repairing: Callable[[Callable[[], None]], None]
) -> None:
    """Before an epoch changes what a view is: make sure that its sinks can be brought away from what it was. Once it is
    changed, what it was cannot be computed again; so this waits for storage, as nothing else does."""
    if durability.state.copies.former:
        repairing(delivery.check_former)
        if not durability.wait_former(_FORMER_SAFE):
            raise StoreError(
                f"flow '{flow}': a view was edited, and its rows as they were must be safe before it changes: they are "
                f"not after {_FORMER_SAFE:g} s: {durability.why_not()}"
            )


def secure_answers(flow: str, durability: Replication, last: int) -> None:
    """A view that is new has asked outside for rows that were there before it: no lineage has these answers, so the
    view does not count before they are safe with its rows."""
    if durability.is_durable and not durability.wait(last, _FORMER_SAFE):
        raise StoreError(
            f"flow '{flow}': a new view has asked outside functions for rows that were there before it, and what they "
            f"answered must be safe before it is used: it is not after {_FORMER_SAFE:g} s: {durability.why_not()}"
        )


def secure_followed(flow: str, durability: Replication, last: int, inputs: Sequence[str]) -> None:
    """Inputs whose schema changed have a new log. It does not count before it is safe: it stands for rows that are
    nowhere else, and those of the old one are not looked for again."""
    if durability.is_durable and not durability.wait(last, _FORMER_SAFE):
        raise StoreError(
            f"flow '{flow}': the schema of {', '.join(map(repr, inputs))} changed, and the rows in their new form must "
            f"be safe before they are used: they are not after {_FORMER_SAFE:g} s: {durability.why_not()}"
        )
