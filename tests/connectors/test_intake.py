"""How often sources are asked, and what they are told."""

from __future__ import annotations

import pytest

from holdfast.connectors.input import Input
from holdfast.connectors.source import Offer, Source
from holdfast.errors import BadFile
from holdfast.plan.nodes import Field
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.intake import Intake


class Slow(Source):
    fields = ()

    def __init__(self, time: list[float], takes: float, patience: float) -> None:
        self._time, self._takes, self.patience = time, takes, patience
        self.asked = 0
        self.news: Offer | None = None

    def poll(self) -> Offer | None:
        self.asked += 1
        self._time[0] += self._takes
        return self.news

    def advance(self, offer: Offer) -> None:
        self.news = None


def test_a_source_that_has_nothing_is_asked_less_often_and_at_once_by_a_step() -> None:
    time = [0.0]
    listing, pushed = Slow(time, 0.05, patience=2.0), Slow(time, 0.0, patience=0.0)
    intake = Intake({"listing": listing, "pushed": pushed}, ConnectorProgress(), [], lambda: time[0])
    for _ in range(100):
        assert intake.poll(["listing", "pushed"], patient=True) == {}
        time[0] += 0.1
    assert pushed.asked == 100
    assert 9 <= listing.asked <= 11, "a twentieth of the time"
    asked = listing.asked
    listing.news = {"x": 1}
    assert intake.poll(["listing"], patient=True) == {}
    assert intake.poll(["listing"]) == {"listing": {"x": 1}}
    assert listing.asked == asked + 1
    assert intake.poll(["listing"], patient=True) == {"listing": {"x": 1}}, "after news it is asked at once"
    listing.news, listing._takes = None, 10.0
    intake.poll(["listing"])
    time[0] += 2.0
    listing.news = {"x": 2}
    assert intake.poll(["listing"], patient=True), "no later than after its patience"


class Accusing(Slow):
    """Knows better what was wrong, as `hf.files` does of a file that Spark cannot read."""

    def reject(self, offer: Offer, error: Exception) -> bool:
        raise BadFile("file 'a.json': it does not read as json", path="a.json") from error


def test_every_source_is_told_that_its_offer_was_rejected_also_if_another_one_raises() -> None:
    """An input that is not told takes the rows for those of an epoch that runs: discard() leaves them alone."""
    accusing, pushed = Accusing([0.0], 0.0, patience=0.0), Input("pushed", (Field("a", "bigint"),))
    intake = Intake({"files": accusing, "pushed": pushed}, ConnectorProgress(), [])
    accusing.news = {"files": ["a.json"]}
    pushed.insert([(1,)])
    offers = intake.poll(["files", "pushed"])
    for one in intake.work(offers):
        if one.source is pushed:
            pushed.parts(one.offers[0])
    with pytest.raises(BadFile, match=r"a\.json"):
        intake.reject(offers, ValueError("a task failed"))
    assert pushed.discard().inserted == 1 and pushed.pending.changes == 0
