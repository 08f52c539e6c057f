"""A collection that comes in whole versions, against plain Python: random versions, partitions, merges, weak hashes."""

from __future__ import annotations

import pickle
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.operators.replaced import ReplacedSpec
from holdfast.trace.hashing import weak_bits
from operators.running import Runner, added, bag, exact

TYPES = (pa.int64(), pa.string())
ARRIVAL = (*TYPES, pa.int64(), pa.bool_())


@pytest.mark.parametrize("bits", [64, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_new_version_gives_the_difference_to_the_one_before(bits: int, data: st.DataObject) -> None:
    spec = ReplacedSpec(TYPES, (0, 1), (), "t")
    assert pickle.loads(pickle.dumps(spec)) == spec
    rows = st.lists(st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", None])), max_size=5)
    versions = data.draw(st.lists(rows, min_size=1, max_size=6))
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    with tempfile.TemporaryDirectory() as directory, weak_bits(bits):
        # A mark reaches each slot, and no partition is less than one.
        runner = Runner(spec, [ARRIVAL], Path(directory), dice, slot=2**64 // 256)
        before: Counter[Any] = Counter()
        for number, version in enumerate(versions):
            now = bag([(row, 1) for row in version])
            arrived = [((*row, number, False), 1) for row in version] + [((None, None, number, True), 1)]
            assert runner.epoch(arrived) == added(now, before, -1)
            assert runner.state("rows") == now
            before = now


def test_of_several_versions_in_one_epoch_the_last_counts(tmp_path: Path) -> None:
    runner = Runner(ReplacedSpec(TYPES, (0, 1), (), "t"), [ARRIVAL], tmp_path, random.Random(0), slot=2**64 // 256)
    marks = [((None, None, number, True), 1) for number in (0, 1)]
    found = runner.epoch([((1, "a", 0, False), 1), ((2, "b", 1, False), 1), *marks])
    assert found == bag([((2, "b"), 1)])


def test_a_version_whose_key_is_not_unique_is_refused(tmp_path: Path) -> None:
    spec = ReplacedSpec(TYPES, (0,), ("id",), "rates")
    runner = Runner(spec, [ARRIVAL], tmp_path, random.Random(0), slot=2**64 // 256)
    mark = ((None, None, 0, True), 1)
    with pytest.raises(InputError, match="'rates', epoch 0: the new version has 2 rows of the key id=1") as caught:
        runner.epoch([((1, "a", 0, False), 1), ((1, "b", 0, False), 1), ((2, "b", 0, False), 1), mark])
    assert caught.value.fields["key"] == (1,)
    assert runner.epoch([((1, "a", 0, False), 1), mark]) == Counter({tuple(map(exact, (1, "a"))): 1})
