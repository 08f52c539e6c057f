"""A gate that tasks must pass: the first few may enter, the others wait until it is opened. So a test decides which
work is done, and which is not, at the moment when it kills a process, however busy the machine is.

    gate = Gate(directory / "gate", free=3)
    …                                    # in tasks: gate.enter()
    AfterTasks(spark, 3, lambda executor: (cluster.kill_executor(executor), gate.open()))

A gate is a directory that all tasks can reach, so the object can be sent to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.foundation.retries import wait_until

_PATIENCE = 120.0


@dataclass(frozen=True)
class Gate:
    """A gate; see the module. Once opened, it stays open."""

    directory: Path
    free: int
    """The number of tasks that may enter before the gate is open."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def enter(self, name: str = "") -> None:
        """Enter if there is room, otherwise wait until the gate is open. ``name``: a name for `has_waited`. Raises
        `TimeoutError`."""
        for number in range(self.free):
            try:
                (self.directory / str(number)).touch(exist_ok=False)
                return
            except FileExistsError:
                continue
        if name:
            (self.directory / f"waits-{name}").touch()
        if not wait_until(lambda: self.is_open, _PATIENCE, 0.01):
            raise TimeoutError(f"gate {self.directory} is still closed after {_PATIENCE:g} s")

    def meet(self, name: str, others: int) -> None:
        """Wait until ``others`` callers with other names have called this, too. Raises `TimeoutError`."""
        (self.directory / f"met-{name}").touch()
        if not wait_until(lambda: len(list(self.directory.glob("met-*"))) > others, _PATIENCE, 0.01):
            raise TimeoutError(f"gate {self.directory}: {name} met fewer than {others} in {_PATIENCE:g} s")

    def open(self) -> None:
        (self.directory / "open").touch()

    def has_waited(self, name: str) -> bool:
        """Whether a caller of that name waits, or waited before the gate was opened."""
        return (self.directory / f"waits-{name}").exists()

    @property
    def is_open(self) -> bool:
        return (self.directory / "open").exists()
