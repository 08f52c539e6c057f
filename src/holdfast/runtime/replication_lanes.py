"""Lanes: background rounds that run side by side. Each location of a log has a lane, and no lane waits for another.

A location that takes seconds for each operation, or hangs, delays its own rounds only. Without threads (in a
simulation) the caller makes the rounds of all lanes in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.runtime.background import Background
from holdfast.runtime.runner import Runner


class Lanes:
    """Several pieces of background work, identified by their index."""

    def __init__(self, runner: Runner, name: str, rounds: Sequence[Callable[[], None]], pause: float) -> None:
        self._runner = runner
        self._rounds = list(rounds)
        self._lanes = [Background(runner, f"{name}-{number}", work, pause) for number, work in enumerate(rounds)]

    @property
    def busy(self) -> bool:
        """Whether a round is running in any lane."""
        return any(lane.busy for lane in self._lanes)

    def request(self, number: int | None = None) -> None:
        """Ask for a round soon: in one lane, or in all."""
        for lane in self._lanes if number is None else [self._lanes[number]]:
            lane.request()

    def hurry(self, numbers: Iterable[int] | None = None) -> None:
        """Ask for a round at once, in these lanes or in all, because a caller waits for it."""
        for lane in self._lanes if numbers is None else [self._lanes[number] for number in numbers]:
            lane.hurry()

    def now(self) -> None:
        """Make the rounds that were requested, in this thread."""
        for lane in self._lanes:
            lane.now()

    def each(self) -> None:
        """Make one round in every lane, requested or not, and wait for all of them."""
        if not self._runner.threads or len(self._rounds) < 2:
            for work in self._rounds:
                work()
            return
        with ThreadPoolExecutor(len(self._rounds)) as pool:
            for done in [pool.submit(work) for work in self._rounds]:
                done.result()

    def close(self) -> None:
        """End the threads, after the rounds that are running."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.close()

    def resume(self) -> None:
        """Start the lanes again after `close`."""
        for lane in self._lanes:
            lane.resume()
