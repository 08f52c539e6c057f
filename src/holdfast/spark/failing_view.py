"""Finds the view whose expression failed in Spark.

All paths that cross through Spark go in one query, so Spark's error names no view. But for most expressions it quotes
where they stand in a text. For an expression that Holdfast wrote, the text names the path's channel
(`stretches.failing_channel`); for an expression of Spark's own (`spark.spark_expressions`), it is the user's text. If
the error quotes nothing, or several views have the same expression, the candidates are the views whose paths got rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.plan.dataflow import Dataflow, Path
from holdfast.plan.expression import SparkExpression
from holdfast.spark import spark_expressions
from holdfast.spark.stretches import failing_channel
from holdfast.task.program import Program


class FailingView:
    """Finds views in the errors of one program."""

    def __init__(self, flow: Dataflow, program: Program) -> None:
        self._flow, self._program = flow, program
        self.sources: frozenset[str] | None = None
        """The sources from which the present epoch takes rows. None: any."""

    def views(self, error: str) -> list[str]:
        """Return the views that an error of Spark, given as its text, can be about."""
        if (channel := failing_channel(error)) is not None:
            return [self._view(channel)]
        paths = list(self._crossing())
        about = [(path, channel) for path, channel in paths if self._is_about(path, error)]
        return list(dict.fromkeys(self._view(channel) for _, channel in about or paths))

    def _crossing(self) -> Iterator[tuple[Path, int]]:
        """Yield the paths on which rows of this epoch may cross through Spark, with their channels."""
        for producer, routes in self._program.routes.items():
            origins = {producer, *self._flow.ancestors({producer})}
            if self.sources is None or origins & self.sources:
                for path, route in zip(self._flow.out_of(producer), routes, strict=True):
                    if route.catalyst:
                        yield path, route.channel

    def _is_about(self, path: Path, error: str) -> bool:
        trees = [tree for step in path.steps for tree in step.expressions]
        names = {each.name for tree in trees for each in tree.walk() if isinstance(each, SparkExpression)}
        return any(spark_expressions.is_about(name, error) for name in names)

    def _view(self, channel: int) -> str:
        return self._program.operators[self._program.channels[channel][0]].view
