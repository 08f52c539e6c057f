"""A gate that tasks must pass: the first few do, the others wait until it is opened. So a test decides what has been
done, and what has not, at the moment at which it kills somebody, however busy the machine is.

    gate = Gate(directory / "gate", free=3)
    …                                    # in tasks: gate.enter()
    AfterTasks(spark, 3, lambda executor: (cluster.kill_executor(executor), gate.open()))

It is a directory that all tasks see, so it can be sent to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.foundation.retries import wait_until

_PATIENCE = 120.0


@dataclass(frozen=True)
class Gate:
    """See the module. One that was opened stays open."""

    directory: Path
    free: int
    """So many may enter before it is open."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def enter(self, name: str = "") -> None:
        """Go in if there is room, or else wait until the gate is open. Who waits can be asked for by ``name``."""
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
        """Wait, at the gate or behind it, until ``others`` of other names have come here too."""
        (self.directory / f"met-{name}").touch()
        if not wait_until(lambda: len(list(self.directory.glob("met-*"))) > others, _PATIENCE, 0.01):
            raise TimeoutError(f"gate {self.directory}: {name} met fewer than {others} in {_PATIENCE:g} s")

    def open(self) -> None:
        (self.directory / "open").touch()

    def has_waited(self, name: str) -> bool:
        """Whether somebody of that name waits, or did before the gate was opened."""
        return (self.directory / f"waits-{name}").exists()

    @property
    def is_open(self) -> bool:
        return (self.directory / "open").exists()
