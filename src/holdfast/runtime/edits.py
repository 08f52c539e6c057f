"""Views that are edited while a flow has sinks: what the next epoch must say of them, and what must be kept until then.

Once an epoch has changed what a view is, what it was cannot be computed again; so the rows as they were are made safe
first, and kept until every sink was brought away from them (`coordinator/view_versions.py`, `runtime/delivery.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.coordinator.view_versions import ViewVersions
from holdfast.errors import StoreError
from holdfast.runtime.compiled_flow import CompiledFlow, log_layout
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.replication import Replication
from holdfast.trace.rows import Layout

_FORMER_SAFE = 60.0
"""So many seconds an edited view waits until its rows as they were are safe."""


class Edits:
    """What an open flow's views are by declaration, beside what the history says they were."""

    def __init__(self, state: CompiledFlow, forms: ViewVersions, delivery: Delivery, durability: Replication) -> None:
        self._state = state
        self._forms = forms
        self._declared = state.forms()
        self._delivery = delivery
        self._durability = durability
        self.absent: dict[str, tuple[Layout, int]] = {}
        """The logs of inputs that are not declared, each with the epoch up to which it is whole: they may come back."""

    def later(self) -> set[str]:
        """The operators that came with a view's edit, after the first epoch."""
        flow = self._state.flow
        present = [(view, past[-1]) for view in flow.views if (past := self._forms.of(view))]
        if not present:
            return set()
        # A view that no epoch says it is what it is declared to be was edited just now, maybe by a driver before.
        old = {flow.views[view] for view, span in present if span.first <= 0 and span.form.log == flow.views[view]}
        return set(flow.operators) - old - flow.ancestors(old)

    @property
    def declared(self) -> bool:
        """Whether the history does not say yet what is declared."""
        return self._forms.present() != self._declared

    def said(self) -> dict[str, Any] | None:
        """What the next epoch must say of how the flow's collections are kept; None if that is known already."""
        if self._forms.changed >= 0 and not self.declared:
            return None
        return {name: form.to_json() for name, form in self._declared.items()}

    def awaited(self) -> bool:
        """Whether a sink waits for the epoch at which its view changed."""
        present = self._forms.present()
        return any(present.get(view) != self._declared[view] for view, _ in self._state.declared.sinks)

    def edited(self) -> bool:
        """Whether a view that there was is another one now, and no epoch says so yet."""
        present = self._forms.present()
        return any(present.get(view, form) != form for view, form in self._declared.items())

    def retained(self) -> frozenset[str]:
        """The logs that views had before, as far back as the flow retains: what changed since can still be told."""
        settings, history = self._state.declared.settings, self._durability.history
        floor = settings.retention.floor(history, history[-1].clock) if history else -1
        return frozenset(
            span.form.trace
            for view in self._declared
            for span in self._forms.of(view)
            if span.last is not None and span.last >= floor
        )

    def secure(self, repairing: Callable[[Callable[[], None]], None]) -> None:
        """Before an epoch changes what a view is: make sure that its sinks can be brought away from what it was. Once
        it is changed, what it was cannot be computed again; so this waits for storage, as nothing else does."""
        self.keep()
        if self._durability.former:
            repairing(self._delivery.check_former)
            if not self._durability.wait_former(_FORMER_SAFE):
                raise StoreError(
                    f"flow '{self._state.declared.name}': a view was edited, and its rows as they were must be safe "
                    f"before it changes: they are not after {_FORMER_SAFE:g} s: {self._durability.why_not()}"
                )

    def secure_answers(self, last: int) -> None:
        """A view that is new has asked outside for rows that were there before it: no lineage has these answers, so the
        view does not count before they are safe with its rows."""
        if self._durability.settings.durable and not self._durability.wait(last, _FORMER_SAFE):
            raise StoreError(
                f"flow '{self._state.declared.name}': a new view has asked outside functions for rows that were there "
                f"before it, and what they answered must be safe before it is used: it is not after {_FORMER_SAFE:g} "
                f"s: {self._durability.why_not()}"
            )

    def keep(self) -> None:
        """Have the logs kept, and made durable, that sinks must still be brought away from."""
        self._durability.former = {
            form.trace: (log_layout(form), upto)
            for form, (upto, _) in self._delivery.former().items()
            if form.trace not in self._state.layouts
        }
        self._durability.former |= self.absent

    def settled(self) -> bool:
        """Whether nobody can need a trace any more that the flow has not. The epoch after the last change must be safe:
        a sink that cannot tell what it has is given the last epoch again."""
        retention = self._state.declared.settings.retention
        return (
            not (retention.epochs is None and retention.seconds is None)
            and 0 <= self._forms.changed < self._durability.safe
            and not self.declared
            and not self._delivery.former()
        )
