"""Running the demo: visits arrive batch by batch, the answer is kept, and at the end Spark computes it from scratch."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.demo.amplab import Generator, Sizes
from holdfast.demo.query import QUERY, VIEW, Answer, declare, follow, maintained, recomputed
from holdfast.errors import DeclarationError

_RECOMPUTATIONS = 3
_SHOWN = 8
"""So many of the last updates are on the screen."""


@dataclass
class Update:
    """One batch of visits, and what it did to the answer."""

    number: int
    visits: int
    seconds: float
    answer: Answer


@dataclass
class Story:
    """What the demo has to tell, so far."""

    sizes: Sizes
    doing: str = "generating"
    updates: list[Update] = field(default_factory=list)

    def screen(self) -> RenderableType:
        table = Table("update", "visits so far", "took", "best visitor of 1980", "revenue", "average page rank")
        for column in (0, 1, 2, 4, 5):
            table.columns[column].justify = "right"
        for update in self.updates[-_SHOWN:]:
            table.add_row(str(update.number), f"{update.visits:,}", f"{update.seconds:.2f} s", *shown(update.answer))
        done = self.updates[-1].number if self.updates else 0
        bar = ProgressBar(total=self.sizes.batches, completed=done, width=60)
        return Group(table, bar, Text(f"{self.doing} …", style="dim"))


def shown(answer: Answer) -> tuple[str, str, str]:
    """An answer as texts."""
    if len(answer) != 1:
        return ("(none yet)" if not answer else f"({len(answer)} rows)", "", "")
    [(visitor, revenue, rank)] = answer
    return visitor, f"{revenue:,.4f}", f"{rank:,.2f}"


def run_demo(console: Console, *, scale: float, batches: int, keep: Path | None, as_json: bool) -> bool:
    """Run it. False if the maintained answer is not the recomputed one."""
    sizes = Sizes.of(scale, batches)
    with ExitStack() as stack:
        home = _home(keep, stack)
        story = Story(sizes)
        if not as_json:
            console.print(
                f"{sizes.visits:,} visits to {sizes.pages:,} pages by {sizes.visitors:,} visitors, arriving in "
                f"{sizes.batches} batches. The view:",
                highlight=False,
            )
            console.print(Text(QUERY, style="cyan"))
        live = Live(get_renderable=story.screen, console=console, refresh_per_second=4, transient=False)
        if console.is_terminal and not as_json:
            stack.enter_context(live)
        outcome = _play(story, home, console, as_json, live)
    return _conclude(console, story, outcome, as_json)


def _home(keep: Path | None, stack: ExitStack) -> Path:
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise DeclarationError(f"demo: {keep} is there already and not empty; give a new directory", path=str(keep))
    keep.mkdir(parents=True, exist_ok=True)
    return keep


@dataclass(frozen=True)
class DemoOutcome:
    """The end of the story: the answer by every way, and what it cost."""

    delivered: Answer
    """What the changes that the sink got add up to."""

    kept: Answer
    """What the flow reads."""

    computed: list[Answer]
    """What Spark computes from scratch, each time it is asked."""

    started: float
    """Seconds until Spark ran and the first update was done."""

    recomputation: float

    @property
    def same(self) -> bool:
        return all(answer == self.computed[0] for answer in (self.delivered, self.kept, *self.computed))


def _play(story: Story, home: Path, console: Console, as_json: bool, live: Live) -> DemoOutcome:
    rankings, visits, arriving = home / "rankings", home / "uservisits", home / "arriving"
    for directory in (rankings, visits, arriving):
        directory.mkdir()
    generator = Generator(story.sizes)
    pq.write_table(generator.rankings(), rankings / "rankings.parquet")
    story.doing = "starting Spark"
    began = time.perf_counter()
    total = 0
    first = 0.0
    with declare(rankings, visits, home / "log") as flow:
        delivered = follow(flow)
        for number in range(1, story.sizes.batches + 1):
            batch = generator.visits()
            name = f"batch-{number:04d}.parquet"
            pq.write_table(batch, arriving / name)
            total += batch.num_rows
            os.replace(arriving / name, visits / name)  # a batch arrives whole
            arrived = time.perf_counter()
            flow.step()
            seconds = time.perf_counter() - arrived  # the answer has been delivered by then
            first = first or time.perf_counter() - began
            story.updates.append(Update(number, total, seconds, delivered()))
            story.doing = "visits arrive"
            _tell(console, story.updates[-1], as_json, live)
        story.doing = "computing the answer from scratch with Spark"
        view = flow.read(VIEW)
        runs = [recomputed(view.sparkSession, rankings, visits) for _ in range(_RECOMPUTATIONS)]
        story.doing = "done"
        return DemoOutcome(
            delivered(),
            maintained(flow),
            [answer for answer, _ in runs],
            first,
            statistics.median(seconds for _, seconds in runs),
        )


def _tell(console: Console, update: Update, as_json: bool, live: Live) -> None:
    if as_json:
        told = {"update": update.number, "visits": update.visits, "seconds": round(update.seconds, 4)}
        print(json.dumps({**told, "answer": update.answer}), flush=True)
    elif not live.is_started:
        answer = "  ".join(shown(update.answer))
        line = f"update {update.number:>3}: {update.visits:>10,} visits  {update.seconds:6.2f} s  {answer}"
        console.print(line, highlight=False, soft_wrap=True)


def _conclude(console: Console, story: Story, outcome: DemoOutcome, as_json: bool) -> bool:
    # The first update loads the pages and warms everything up; it is told apart.
    later = [update.seconds for update in story.updates[1:]] or [story.updates[0].seconds]
    update = statistics.median(later)
    if as_json:
        answers = {"same": outcome.same, "delivered": outcome.delivered, "read": outcome.kept}
        costs = {
            "first_update": outcome.started,
            "median_update": update,
            "recomputation": outcome.recomputation,
            "ratio": outcome.recomputation / update,
        }
        rounded = {name: round(value, 4) for name, value in costs.items()}
        print(json.dumps({**answers, "recomputed": outcome.computed[0], **rounded}))
        return outcome.same
    console.print()
    ways = {"delivered by the sink": outcome.delivered, "read from the view": outcome.kept}
    for way, answer in {**ways, "computed from scratch": outcome.computed[0]}.items():
        console.print(f"{way:>22}:  {'  '.join(shown(answer))}", highlight=False, soft_wrap=True)
    if not outcome.same:
        console.print("WRONG: the maintained answer is not the one that Spark computes from scratch.", style="bold red")
        return False
    console.print("The same answer, to the last bit.", style="green")
    ratio = outcome.recomputation / update
    compared = f"{ratio:.1f} times as long" if ratio >= 1 else f"{ratio:.2f} times that"
    console.print(
        f"An update took {update:.2f} s (median; {story.sizes.visits // story.sizes.batches:,} visits each), a full "
        f"recomputation {outcome.recomputation:.2f} s (median of {_RECOMPUTATIONS}), {compared}. "
        f"The first update was there {outcome.started:.1f} s after the start.",
        highlight=False,
        soft_wrap=True,
    )
    return True
