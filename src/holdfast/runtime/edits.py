"""Waits for storage before an edited view is used, until everything is safe that `coordinator/view_edits.py` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import StoreError
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.replication import Replication

_FORMER_SAFE = 60.0
"""The seconds that the flow waits for rows, in their former or new form, to become safe."""


def secure_former(
    flow: str, delivery: Delivery, durability: Replication, repairing: Callable[[Callable[[], None]], None]
) -> None:
    """Wait until the former logs of edited views are safe, before an epoch changes their version. Sinks still need the
    difference from the former log, which cannot be computed again once the view has changed. Raise `StoreError` if the
    logs are not safe in time."""
    if durability.state.copies.former:
        repairing(delivery.check_former)
        if not durability.wait_former(_FORMER_SAFE):
            raise StoreError(
                f"flow '{flow}': a view was edited, and its rows as they were must be safe before it changes: they are "
                f"not after {_FORMER_SAFE:g} s: {durability.why_not()}"
            )


def secure_answers(flow: str, durability: Replication, last: int) -> None:
    """Wait until the answers are safe that a new view got from outside functions for older rows. No lineage has these
    answers, so the view must not be used before. Raise `StoreError` if they are not safe in time."""
    if durability.is_durable and not durability.wait(last, _FORMER_SAFE):
        raise StoreError(
            f"flow '{flow}': a new view has asked outside functions for rows that were there before it, and what they "
            f"answered must be safe before it is used: it is not after {_FORMER_SAFE:g} s: {durability.why_not()}"
        )


def secure_followed(flow: str, durability: Replication, last: int, inputs: Sequence[str]) -> None:
    """Wait until the new logs of inputs whose schema changed are safe. They are the only copy of these rows, because
    the former logs are not used any more. Raise `StoreError` if they are not safe in time."""
    if durability.is_durable and not durability.wait(last, _FORMER_SAFE):
        raise StoreError(
            f"flow '{flow}': the schema of {', '.join(map(repr, inputs))} changed, and the rows in their new form must "
            f"be safe before they are used: they are not after {_FORMER_SAFE:g} s: {durability.why_not()}"
        )
