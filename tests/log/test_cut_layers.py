"""Of a layer that another member needs, only the range of key hashes that it will keep is moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.coordinator.copy_plan import Copied
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.durable_layer import durable_name, encode_layer
from holdfast.log.replica import Replica
from holdfast.runtime.recovery.layer_transfer import LayerTransfer, read_layers, write_layers
from holdfast.testing.memory import MemoryLocation
from holdfast.trace.layer import list_layers, open_layer, write_layer
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Block, Layout, constant_epoch

LAYOUT = Layout(1, 1, "none")
QUARTER = ALL // 4
DIGEST = "00112233aabbccdd"


def _block() -> Block:
    """Two rows in each quarter of the hashes."""
    hashes = np.array([quarter * QUARTER + step for quarter in range(4) for step in (1, 2)], np.uint64)
    column = pa.array(range(8), pa.int64())
    return Block(hashes, None, (column,), constant_epoch(3, 8), {"+diff": np.ones(8, np.int64)})


def _hashes(directory: Path) -> dict[tuple[int, int], list[int]]:
    found = {}
    for name in list_layers(directory):
        layer = open_layer(directory / name.text())
        found[name.low, name.high] = [int(each) for each in layer.block(0, layer.rows).hash]
        assert (name.first, name.last, name.digest) == (3, 3, DIGEST)
    return found


def test_a_member_fetches_the_ranges_that_it_will_keep_and_no_others(tmp_path: Path) -> None:
    place = MemoryLocation()
    data = encode_layer(_block(), LAYOUT, metadata={})
    name = durable_name(0, ALL, 3, 3, DIGEST, -1, data)
    Replica(place).write_layer("t", name, data)
    cuts = ((0, QUARTER), (2 * QUARTER, ALL))
    results = fetch_all([Fetch("t", name, str(tmp_path), (0,), 0, cuts)], [place])
    assert [type(result) for result in results] == [Copied], "it is read once"
    whole = [int(each) for each in _block().hash]
    assert _hashes(tmp_path) == {cuts[0]: whole[:2], cuts[1]: whole[4:]}


@pytest.mark.parametrize("cut", [(QUARTER, 2 * QUARTER), (0, ALL)])
def test_a_member_hands_over_the_range_that_another_will_keep(tmp_path: Path, cut: tuple[int, int]) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    name = write_layer(own, _block(), LAYOUT, low=0, high=ALL, first=3, last=3, digest=DIGEST)
    given = read_layers([LayerTransfer("a", str(own), name, cut[0], cut)])
    given = [LayerTransfer(one.giver, str(other), one.name, one.low, one.cut, one.data) for one in given]
    assert write_layers(given) == [1]
    assert _hashes(other) == {cut: [int(each) for each in _block().hash if cut[0] <= int(each) < cut[1]]}
    gone = LayerName(0, ALL, 4, 4, DIGEST, -1, "0" * 16)
    assert read_layers([LayerTransfer("a", str(own), gone, 0, (0, QUARTER))]) == [], "it was merged in the meantime"
