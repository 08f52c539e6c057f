"""The words in footers of layers are part of the durable format: they stay, whatever modules are called."""

from __future__ import annotations

from holdfast.log.layer_footers import ANSWERS, LINEAGE, answers_footer
from holdfast.trace.quiet import CHANGED

PREFIX = "holdfast"


def test_the_words_of_footers_are_those_of_the_released_formats() -> None:
    assert [f"{PREFIX}.{word}" for word in ("answers", "lineage", "changed")] == [ANSWERS, LINEAGE, CHANGED]
    assert answers_footer({"b": "2", "a": "1"}) == {f"{PREFIX}.answers": '{"a":"1","b":"2"}'}
