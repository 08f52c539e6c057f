"""A step that raises has not happened, or says that it has: at every point at which one can fail, with a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import AfterEpoch, HoldfastError, LogError
from holdfast.log.stash import LineageLog, read_stash
from holdfast.runtime import exact_epochs
from holdfast.runtime.engine import Engine
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator.run import Simulation


def _full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _once(owner: Any, name: str, instead: Callable[..., Any], patch: pytest.MonkeyPatch) -> None:
    """The next call of a method fails, or does something else."""
    before = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        patch.setattr(owner, name, before)
        return instead(*arguments, **named)

    patch.setattr(owner, name, call)


def _stash(patch: pytest.MonkeyPatch, engine: Engine, written: int | None, truncates: bool = True) -> None:
    """The next write to the stash is cut short, or fails."""
    write, truncate, file = os.write, os.ftruncate, engine._lineage._file

    def short(descriptor: int, data: bytes) -> int:
        if descriptor != file:
            return write(descriptor, data)
        patch.setattr(os, "write", write)
        return _full() if written is None else write(descriptor, data[:written])

    patch.setattr(os, "write", short)
    if not truncates:

        def fails(descriptor: int, size: int) -> None:
            if descriptor != file:
                return truncate(descriptor, size)
            patch.setattr(os, "ftruncate", truncate)
            return _full()

        patch.setattr(os, "ftruncate", fails)


def _after_commit(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    sink = engine.declared.sinks[0][1]
    commit = sink.commit
    _once(sink, "commit", lambda *given: (commit(*given), _full()), patch)


Inject = Callable[[Engine, pytest.MonkeyPatch], None]
POINTS: dict[str, tuple[bool, Inject]] = {
    # what fails: whether the epoch counts
    "the job": (False, lambda engine, patch: _once(engine._job, "run", _full, patch)),
    "the question who leads": (False, lambda engine, patch: _once(engine._lead, "demand", _full, patch)),
    "the answers": (False, lambda engine, patch: _once(exact_epochs, "answers_of", _full, patch)),
    "the write of the stash": (False, lambda engine, patch: _stash(patch, engine, None)),
    "half of the write": (False, lambda engine, patch: _stash(patch, engine, 20)),
    "half of the write, and cutting it off": (False, lambda engine, patch: _stash(patch, engine, 20, truncates=False)),
    "the last byte, and cutting it off": (False, lambda engine, patch: _stash(patch, engine, -1, truncates=False)),
    "advance": (True, lambda engine, patch: _once(engine.declared.sources["orders"], "advance", _full, patch)),
    "asking for a round": (True, lambda engine, patch: _once(engine._durability, "request", _full, patch)),
    "a sink before it has the epoch": (
        True,
        lambda engine, patch: _once(engine.declared.sinks[0][1], "commit", _full, patch),
    ),
    "a sink that has the epoch": (True, _after_commit),
    "following tasks": (True, lambda engine, patch: _once(engine._layers, "ran", _full, patch)),
    "folding": (True, lambda engine, patch: _once(engine._folding, "maybe", _full, patch)),
}


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    simulation = Simulation(1, tmp_path)
    yield simulation
    for driver in simulation.drivers:
        driver.die()


@pytest.mark.parametrize("then", ["goes on", "is closed", "dies"])
@pytest.mark.parametrize("point", POINTS)
def test_a_step_that_raises_has_not_happened_or_says_that_it_has(
    simulation: Simulation, point: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, inject = POINTS[point]
    driver = simulation.drivers[0]
    for seed in (1, 2, 5):
        simulation.do(act.Feed(seed))
        driver.open().step()
    engine = driver.open()
    before = engine.last
    simulation.do(act.Feed(4))
    simulation.do(act.Feed(6))
    assert "orders" in engine._intake.poll(["orders"])
    with monkeypatch.context() as patch:
        inject(engine, patch)
        with pytest.raises((HoldfastError, OSError)) as raised:
            engine.step()
    fields = raised.value.fields if isinstance(raised.value, HoldfastError) else {}
    assert fields.get("complete", False) is counts
    assert engine.last == before + counts
    if counts:
        assert isinstance(raised.value, HoldfastError)
        assert f"epoch {before + 1} is complete" in str(raised.value).lower()
    if then == "goes on":
        assert engine.step().epoch == before + counts + 1 or counts
    else:
        if then == "is closed":
            engine.close()
        driver.die()
        assert driver.open().last == before + counts, "whoever opens the log finds what the error said"
        driver.open().step()
    simulation.finish()


def test_what_a_source_could_not_be_told_it_is_told_before_it_is_asked_again(simulation: Simulation) -> None:
    driver = simulation.drivers[0]
    simulation.do(act.Feed(4))
    simulation.do(act.Feed(6))
    engine = driver.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.declared.sources["orders"], "advance", _full)
        with pytest.raises(HoldfastError, match="source 'orders': it could not be told") as first:
            engine.step()
        with pytest.raises(HoldfastError, match="source 'orders': it could not be told") as second:
            engine.step()
    assert (first.value.fields["complete"], second.value.fields["complete"]) == (True, False)
    assert engine.last == 0
    simulation.finish()


def test_layers_of_a_failed_epoch_that_cannot_be_removed_are_said_and_removed_later(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = simulation.drivers[0]
    simulation.do(act.Feed(1))
    engine = driver.open()
    with monkeypatch.context() as patch:
        _stash(patch, engine, None)
        patch.setattr(engine._runner, "everywhere", _full)
        with pytest.raises(LogError, match="nothing of it counts") as raised:
            engine.step()
    assert raised.value.fields["complete"] is None
    assert "may count" in raised.value.__notes__[0]
    engine.close()
    driver.die()
    assert driver.open().last == -1
    simulation.finish()


def test_an_engine_that_was_interrupted_while_counting_does_not_guess(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = simulation.drivers[0]
    simulation.do(act.Feed(1))
    engine = driver.open()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine._state.epochs, "complete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert engine.torn
    with pytest.raises(LogError, match="open it again"):
        engine.step()
    engine.close()
    driver.die()
    assert driver.open().last == 0
    simulation.finish()


def test_an_error_that_is_not_ours_is_told_as_one_after_the_epoch(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.do(act.Feed(1))
    engine = simulation.drivers[0].open()
    with monkeypatch.context() as patch:
        _once(engine._layers, "ran", _full, patch)
        with pytest.raises(AfterEpoch, match=r"looking after layers failed: OSError.*No space left") as raised:
            engine.step()
    assert raised.value.fields == {"flow": "simulated", "epoch": 0, "complete": True}


def test_a_line_without_its_end_is_none(tmp_path: Path, simulation: Simulation) -> None:
    simulation.do(act.Feed(1))
    engine = simulation.drivers[0].open()
    engine.step()
    path = tmp_path / "stash" / "log.jsonl"
    log = LineageLog(path, [])
    log.append(engine.history[0], log.history.append)
    log.close()
    assert [record.epoch for record in read_stash(path)[0]] == [0]
    path.write_bytes(path.read_bytes()[:-1])
    assert read_stash(path) == ([], [])
