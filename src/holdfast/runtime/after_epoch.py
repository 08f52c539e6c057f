"""The work that follows after an epoch counts: telling sources, copying, delivering, merging.

Each part is done even if another part failed, and a failed part is done before the next epoch. The error that is raised
in the end must say that the epoch is complete: a caller that believes it undone would push the same rows twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import AfterEpoch, Fenced, HoldfastError


class EpochFollowUp:
    """The parts that follow one epoch."""

    def __init__(self, flow: str, epoch: int) -> None:
        self._flow = flow
        self._epoch = epoch
        self._failed: list[tuple[str, Exception]] = []

    @property
    def well(self) -> bool:
        """Whether nothing has failed so far."""
        return not self._failed

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Do a part. An exception is kept for `check`, so that the other parts follow; only `Fenced` is raised at
        once."""
        try:
            yield
        except Fenced:
            raise
        except Exception as error:
            self._failed.append((what, error))

    def check(self) -> None:
        """Raise the first error, with the words that the epoch is complete and counts."""
        if not self._failed:
            return
        what, error = self._failed[0]
        if not isinstance(error, HoldfastError):
            raise AfterEpoch(
                f"flow '{self._flow}': epoch {self._epoch} is complete, and counts; after it, {what} failed: "
                f"{type(error).__name__}: {error}. It will be tried again before the next epoch",
                flow=self._flow,
                epoch=self._epoch,
                complete=True,
            ) from error
        error.fields.update(complete=True, epoch=error.fields.get("epoch", self._epoch))
        if f"poch {self._epoch} is complete" not in str(error):  # the error of a sink says so already
            said = f"{error} (epoch {self._epoch} is complete, and counts; what failed will be tried again)"
            error.args = (said, *error.args[1:])
        raise error
