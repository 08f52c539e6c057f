"""The tasks of one query, from Spark's events: which were lost, which ran again, and where."""

from __future__ import annotations

import threading
from collections.abc import Collection

from holdfast.results.query_results import Recomputed
from holdfast.spark.listener import Event, JobStarted, StageSubmitted, TaskEnded

_LOST = ("ExecutorLostFailure", "Resubmitted", "FetchFailed")


class QueryHistory:
    """The events of one job group. The listener's thread adds them, other threads read them."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._stages: dict[int, int] = {}
        """Stage → number of its tasks."""

        self._attempts: dict[int, int] = {}
        self._ended: list[TaskEnded] = []

    def hear(self, event: Event) -> None:
        with self._lock:
            match event:
                case JobStarted(group=group) if group == self._group:
                    for stage in event.stages:
                        self._stages.setdefault(stage, 0)
                case StageSubmitted(stage=stage) if stage in self._stages:
                    self._stages[stage] = max(event.tasks, self._stages[stage])
                    self._attempts[stage] = max(event.attempt, self._attempts.get(stage, 0))
                case TaskEnded(stage=stage) if stage in self._stages:
                    self._ended.append(event)

    @property
    def ended(self) -> list[TaskEnded]:
        with self._lock:
            return list(self._ended)

    @property
    def victims(self) -> bool:
        """Whether a task failed because its executor ended."""
        return any(task.reason == "ExecutorLostFailure" for task in self.ended)

    def repeated(self, stages: Collection[int]) -> bool:
        """Whether one of these stages was started again after it had been complete."""
        with self._lock:
            return any(self._attempts.get(stage, 0) > 0 for stage in stages)

    def held(self, lost: Collection[str]) -> set[tuple[int, int]]:
        """Return the tasks (stage, partition) that these executors had completed."""
        return {
            (task.stage, task.partition) for task in self.ended if task.reason == "Success" and task.executor in lost
        }

    def failed(self, places: Collection[tuple[int, int]]) -> TaskEnded | None:
        """Return a task among these that failed by itself, not because of a loss; None if there is none."""
        return next(
            (one for one in self.ended if one.reason == "ExceptionFailure" and (one.stage, one.partition) in places),
            None,
        )

    def progress(self) -> tuple[str, str]:
        """Return the stages that are done, and those that are not, as texts."""
        with self._lock:
            done: dict[int, set[int]] = {stage: set() for stage in self._stages}
            for task in self._ended:
                if task.reason == "Success":
                    done[task.stage].add(task.partition)
            begun = {stage: tasks for stage, tasks in self._stages.items() if tasks}
            waiting = [stage for stage in self._stages if stage not in begun]
        finished = [f"stage {stage}" for stage, tasks in sorted(begun.items()) if len(done[stage]) >= tasks]
        open_ones = [
            f"stage {stage} ({len(done[stage])} of {tasks} tasks)"
            for stage, tasks in sorted(begun.items())
            if len(done[stage]) < tasks
        ]
        open_ones += [f"stage {stage} (not begun)" for stage in sorted(waiting)]
        return ", ".join(finished) or "nothing", ", ".join(open_ones) or "nothing"

    def recomputed(self) -> tuple[Recomputed, ...]:
        """Return the tasks that ran again because of a loss, and the executor that completed them."""
        by_place: dict[tuple[int, int], list[TaskEnded]] = {}
        for task in self.ended:
            by_place.setdefault((task.stage, task.partition), []).append(task)
        found = []
        for (stage, partition), tasks in sorted(by_place.items()):
            wins = [task for task in tasks if task.reason == "Success"]
            lost = [task for task in tasks if task.reason in _LOST]
            if not wins or (len(wins) < 2 and not lost):
                continue
            first, last = (lost[0] if lost else wins[0]), wins[-1]
            found.append(Recomputed(stage, partition, _named(first), _named(last), first.reason))
        return tuple(found)


def _named(task: TaskEnded) -> str:
    return f"executor {task.executor} on {task.host}"
