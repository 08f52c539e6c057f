"""The logs that epochs write and do not read: an epoch costs the same, however large they are."""

from __future__ import annotations

from pathlib import Path

from durability.simulated import Shop
from holdfast.task.program import partition_range
from holdfast.testing.memory import MemoryLocation
from holdfast.trace import layer
from holdfast.trace.layer import forget_all
from holdfast.trace.trace import Trace


def test_an_epoch_does_not_open_the_layers_of_a_log_that_it_only_writes(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    engine = shop.open([MemoryLocation("memory://a")], sinks=False)
    shop.run(engine, 12)
    forget_all()
    shop.run(engine, 3, upkeep=False)
    logs = {str(engine._compiled.directory / trace) for trace in engine._compiled.only_written}
    assert logs and layer._open_in
    assert not logs & set(layer._open_in)
    shop.check(engine)
    engine.close()


def test_the_layers_that_are_counted_are_those_that_a_reader_opens(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    engine = shop.open([MemoryLocation("memory://a")], sinks=False)
    shop.run(engine, 7)
    shop.run(engine, 4, upkeep=False)
    chain, counts = engine._state.epochs.chain(), set()
    for trace, layout in engine._compiled.layouts.items():
        for partition in range(engine.partitions):
            where = (engine._compiled.directory / trace, layout, *partition_range(partition, engine.partitions))
            names = Trace.names(*where, engine.last, chain)
            assert sorted(names) == sorted(Trace.open(*where, engine.last, chain).layers)
            counts.add(len(names))
    assert max(counts) > 1
    engine.close()
