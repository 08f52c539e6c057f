"""Inputs and sources that are declared in some runs of a flow and not in others, or with other columns. No Spark: the
engine runs on the simulator's runner, and every column is a bigint."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connectors import Input, files
from holdfast.connectors.source import Source
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import BadFile, SchemaChanged
from holdfast.guarantees.strategies import NoSync
from holdfast.log.location import LocalLocation
from holdfast.operators.rewrites import rewrite
from holdfast.operators.temporal import Temporal
from holdfast.plan import nodes
from holdfast.plan.nodes import Field
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import World

from ..planned import plan_sql

SECOND = 1_000_000
SUMS = "SELECT k, sum(x) AS total FROM {} GROUP BY k"


def columns(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "bigint") for name in names)


class Runs:
    """A flow that is opened again and again, with other declarations."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = World(1, root)
        self.world.random = random.Random(1)
        self.engine: Engine | None = None

    def open(self, sources: Mapping[str, Source], views: Mapping[str, str], expires: str | None = None) -> Engine:
        """``expires``: the source whose rows go when the clock has reached their ``x``."""
        self.close()
        tables: dict[str, nodes.Node] = {name: nodes.Source(name, tuple(one.fields)) for name, one in sources.items()}
        if expires in tables:
            tables[expires] = Temporal(tables[expires], None, "x")
        plans: dict[str, nodes.Node] = {}
        for name, sql in views.items():
            plans[name] = rewrite(plan_sql(name, sql, {**tables, **plans}), keep=list(plans.values()))
        declared = Declaration(
            name="f",
            local=self.root / "a",
            locations=(LocalLocation(self.root / "a"), LocalLocation(self.root / "b")),
            sources=dict(sources),
            views=plans,
            texts=dict(views),
            sinks=(),
            settings=DurabilitySettings(NoSync(), 1, Bound(), Retention(epochs=2)),
            expiring={expires: tables[expires]} if expires in tables else {},
        )
        self.engine = Engine(PreparedFlow(declared, SimulatedRunner(self.world, 2)), ConnectorProgress())
        return self.engine

    def rows(self, view: str) -> list[tuple[int, ...]]:
        assert self.engine is not None
        kept, epoch = self.engine.views.readable(view, None)
        return sorted(tuple(row.values()) for row in kept.rows(0, 2**64, epoch).to_pylist())

    def close(self) -> None:
        if self.engine is not None:
            self.engine.upkeep()
            self.engine.close()
            self.engine = None


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    runs.close()


def pushed(name: str, *names: str) -> Input:
    return Input(name, columns(*(names or ("k", "x"))))


@pytest.mark.parametrize("lost", ["nothing", "the local directory"])
@pytest.mark.parametrize("quiet", [0, 9])
def test_an_input_that_was_not_declared_for_a_while_goes_on_where_it_was(runs: Runs, lost: str, quiet: int) -> None:
    views = {"va": SUMS.format("a"), "vb": SUMS.format("b")}
    a, b = pushed("a"), pushed("b")
    engine = runs.open({"a": a, "b": b}, views)
    for number in range(3):
        a.insert([(1, number)])
        b.insert([(2, number), (3, 1)])
        engine.step()
        engine.upkeep()
    last = engine.last

    a = pushed("a")
    engine = runs.open({"a": a}, {"va": views["va"]})
    for _ in range(quiet):
        a.insert([(1, 1)])
        engine.step()
        engine.upkeep()
    assert runs.rows("va") == [(1, 3 + quiet)]
    for _ in range(2):  # and once more without it
        engine = runs.open({"a": (a := pushed("a"))}, {"va": views["va"]})
    runs.close()
    if lost != "nothing":
        for place in ("traces", "lineage"):
            shutil.rmtree(runs.root / "a" / place, ignore_errors=True)
        (runs.root / "a" / "collections.json").unlink()

    a, b = pushed("a"), pushed("b")
    engine = runs.open({"a": a, "b": b}, views)
    assert engine.last == last + quiet
    assert runs.rows("va") == [(1, 3 + quiet)] and runs.rows("vb") == [(2, 3), (3, 3)]
    b.delete([(2, 1), (3, 1)])
    b.insert([(4, 4)])
    offer = b.poll()
    assert offer is not None and offer["first"] == 3, "its progress is right"
    engine.step()
    assert runs.rows("vb") == [(2, 2), (3, 2), (4, 4)]
    assert len(engine.recovery.epochs) <= 3 or lost != "nothing", "epochs without it are made up for in one go"


def test_rows_of_an_input_that_expired_while_it_was_not_declared_are_gone_when_it_is_back(runs: Runs) -> None:
    views = {"va": SUMS.format("a"), "vb": "SELECT k, count(*) AS n FROM b GROUP BY k"}
    a, b = pushed("a"), pushed("b")
    engine = runs.open({"a": a, "b": b}, views, expires="b")
    now = runs.world.tick()
    b.insert([(1, now + 10 * SECOND), (2, now + 100_000 * SECOND)])
    engine.step()
    assert runs.rows("vb") == [(1, 1), (2, 1)]
    engine = runs.open({"a": (a := pushed("a"))}, {"va": views["va"]})
    while runs.world.tick() < now + 20 * SECOND or engine.last < 3:
        a.insert([(1, 1)])
        engine.step()
    engine = runs.open({"a": pushed("a"), "b": pushed("b")}, views, expires="b")
    assert runs.rows("vb") == [(2, 1)]
    assert engine.recovery.filled == engine.last


def test_an_input_whose_schema_changed_says_what_it_was_and_since_when(runs: Runs) -> None:
    a = pushed("a")
    engine = runs.open({"a": a}, {"va": SUMS.format("a")})
    for number in range(3):
        a.insert([(1, number)])
        engine.step()
    for names in (("k", "z"), ("z", "x")):  # (what may change: test_schema_changes.py)
        view = f"SELECT {names[1]} AS k, sum({names[0]}) AS total FROM a GROUP BY {names[1]}"
        with pytest.raises(SchemaChanged, match=r"input 'a': its schema changed: in epochs 0 to 2 it was \(k") as e:
            runs.open({"a": pushed("a", *names)}, {"va": view})
        assert e.value.fields["first"] == 0 and e.value.fields["last"] == 2
        assert "UNION ALL" in str(e.value)
    runs.open({"a": pushed("a")}, {"va": SUMS.format("a")})
    assert runs.rows("va") == [(1, 3)], "nothing was touched"


def test_an_input_that_comes_back_with_other_columns_says_so(runs: Runs) -> None:
    a, b = pushed("a"), pushed("b")
    engine = runs.open({"a": a, "b": b}, {"va": SUMS.format("a"), "vb": SUMS.format("b")})
    a.insert([(1, 1)])
    b.insert([(1, 1)])
    engine.step()
    engine = runs.open({"a": (a := pushed("a"))}, {"va": SUMS.format("a")})
    a.insert([(1, 1)])
    engine.step()
    with pytest.raises(SchemaChanged, match="input 'b': its schema changed: in epochs 0 to 0"):
        view = "SELECT k, sum(z) AS total FROM b GROUP BY k"
        runs.open({"a": pushed("a"), "b": pushed("b", "k", "z")}, {"vb": view})


def test_an_input_of_which_nothing_was_taken_may_change(runs: Runs) -> None:
    a = pushed("a")
    engine = runs.open({"a": a, "b": pushed("b")}, {"va": SUMS.format("a")})
    a.insert([(1, 1)])
    engine.step()
    b = pushed("b", "k", "x", "y")
    engine = runs.open({"a": pushed("a"), "b": b}, {"va": SUMS.format("a"), "vb": "SELECT k, y FROM b"})
    b.insert([(1, 2, 3)])
    engine.step()
    assert runs.rows("vb") == [(1, 3)]


def test_a_source_whose_files_do_not_fit_its_new_schema_says_that_it_changed(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [1], "x": [2]}), tmp_path / "in" / "1.parquet")
    engine = runs.open({"t": files(tmp_path / "in", schema="k long, x long")}, {"v": SUMS.format("t")})
    engine.step()
    source = files(tmp_path / "in", schema="k long, y long")
    with pytest.raises(SchemaChanged, match=r"source 't': its schema changed.*1\.parquet': column 'y'"):
        runs.open({"t": source}, {"v": "SELECT k, sum(y) AS total FROM t GROUP BY k"})


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_file_that_is_deleted_between_poll_and_epoch_does_not_stop_the_flow(
    runs: Runs, tmp_path: Path, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        pq.write_table(pa.table({"k": [1], "x": [number]}), tmp_path / "in" / f"{number}.parquet")
    source = files(tmp_path / "in", schema="k long, x long", on_bad_file=policy)
    engine = runs.open({"t": source}, {"v": SUMS.format("t")})
    poll, aside = engine._intake.poll, tmp_path / "aside.parquet"

    def poll_and_lose(*given: Any) -> Any:
        offers = poll(*given)
        if not aside.exists():
            (tmp_path / "in" / "2.parquet").rename(aside)
        return offers

    monkeypatch.setattr(engine._intake, "poll", poll_and_lose)
    if policy == "fail":
        with pytest.raises(BadFile, match=r"2\.parquet': it was removed before an epoch took it.*back") as caught:
            engine.step()
        assert caught.value.fields["path"] == str(tmp_path / "in" / "2.parquet")
    assert engine.step().epoch == 0 and runs.rows("v") == [(1, 1)]
    assert engine.step().idle
    shutil.copy2(aside, tmp_path / "in" / "2.parquet")
    assert engine.step().epoch == 1 and runs.rows("v") == [(1, 3)], "it is back"
