"""Nexmark: people open auctions and bid; the events, and the queries as views.

Of 50 events one is a new person, three are new auctions and 46 are bids, as in the original; so are the ratios of what
is hot: half of the bids go to the hot auction of the last hundred, three quarters of them come from the hot bidder of
the last hundred, and three quarters of the auctions are opened by the hot seller. The order is the order of time: event
n happens at n divided by the rate, so no two events have one time.

Every value is a function of the seed and the event's number (a hash of the two), and nothing else: any slice of the
stream can be made by itself, in any order, and is always the same. A slice costs some NumPy passes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCHEMAS = {
    "person": (
        "id bigint, name string, emailAddress string, creditCard string, city string, state string, "
        "dateTime timestamp, extra string"
    ),
    "auction": (
        "id bigint, itemName string, description string, initialBid bigint, reserve bigint, dateTime timestamp, "
        "expires timestamp, seller bigint, category bigint, extra string"
    ),
    "bid": (
        "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string"
    ),
}

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_QUERIES = Path(__file__).parent / "queries" / "nexmark"
_START = 1_436_918_400_000_000  # 2015-07-15, in microseconds
_PEOPLE, _AUCTIONS, _ALL = 1, 3, 50
_FIRST_ID = 1000
_FIRST_CATEGORY = 10
_ACTIVE_PEOPLE, _OPEN_AUCTIONS, _CATEGORIES = 1000, 100, 5
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def queries() -> dict[str, str]:
    """Name → SQL of all queries, in the order of their numbers."""
    found = sorted(_QUERIES.glob("q*.sql"), key=lambda path: int(path.stem[1:]))
    return {path.stem: path.read_text() for path in found}


class Nexmark:
    """The stream of one seed."""

    def __init__(self, seed: int = 1, events_per_second: int = 100) -> None:
        self._seed = seed
        self._rate = events_per_second

    def events(self, first: int, count: int) -> dict[str, pa.Table]:
        """Events ``first`` … ``first + count - 1``, as the rows that they add to each table."""
        number = np.arange(first, first + count, dtype=np.int64)
        place = number % _ALL
        return {
            "person": self._people(number[place < _PEOPLE]),
            "auction": self._auctions(number[(place >= _PEOPLE) & (place < _PEOPLE + _AUCTIONS)]),
            "bid": self._bids(number[place >= _PEOPLE + _AUCTIONS]),
        }

    def _people(self, number: Ints) -> pa.Table:
        pick = self._picker(number, "person")
        first, last = _choice(_FIRST, pick(0, len(_FIRST))), _choice(_LAST, pick(1, len(_LAST)))
        card = pc.binary_join_element_wise(*(_padded(pick(2 + part, 10_000), 4) for part in range(4)), " ")
        email = pc.binary_join_element_wise(_text(pick(6, 10**6)), _text(pick(7, 10**4)), "@")
        return self._table(
            "person",
            _FIRST_ID + number // _ALL,
            pc.binary_join_element_wise(first, last, " "),
            pc.binary_join_element_wise(email, "com", "."),
            card,
            _choice(_CITIES, pick(8, len(_CITIES))),
            _choice(_STATES, pick(9, len(_STATES))),
            self._time(number),
            self._extra(number, "person"),
        )

    def _auctions(self, number: Ints) -> pa.Table:
        pick = self._picker(number, "auction")
        price = _price(pick(0, 2**53))
        # Long enough for some hundred bids, on average.
        ends = self._time(number) + (1 + pick(1, 2 * _OPEN_AUCTIONS)) * (_ALL * 1_000_000 // (_AUCTIONS * self._rate))
        return self._table(
            "auction",
            _FIRST_ID + number // _ALL * _AUCTIONS + number % _ALL - _PEOPLE,
            pc.binary_join_element_wise("item", _text(pick(2, 10**4)), "-"),
            pc.binary_join_element_wise("about", _text(pick(3, 10**6)), " "),
            price,
            price + _price(pick(4, 2**53)),
            self._time(number),
            ends,
            self._person(number, pick(5, 4) > 0, pick(6, 2**53)),
            _FIRST_CATEGORY + pick(7, _CATEGORIES),
            self._extra(number, "auction"),
        )

    def _bids(self, number: Ints) -> pa.Table:
        pick = self._picker(number, "bid")
        opened = number // _ALL * _AUCTIONS + _AUCTIONS  # auctions come before the bids of their fifty
        hot = (opened - 1) // _OPEN_AUCTIONS * _OPEN_AUCTIONS
        recent = np.maximum(0, opened - _OPEN_AUCTIONS)
        auction = np.where(pick(0, 2) > 0, hot, recent + pick(1, 2**53) % (opened - recent))
        channel = pick(4, 10_000)
        named = _choice(_CHANNELS, channel % len(_CHANNELS))
        numbered = pc.binary_join_element_wise("channel", _text(channel), "-")
        popular = pick(5, 2) > 0
        item = pc.binary_join_element_wise(
            "https://www.nexmark.com", _text(channel % 97), _text(pick(6, 1000)), "item.htm?query=1", "/"
        )
        url = pc.if_else(popular, item, pc.binary_join_element_wise(item, _text(channel), "&channel_id="))
        return self._table(
            "bid",
            _FIRST_ID + auction,
            self._person(number, pick(2, 4) > 0, pick(3, 2**53)),
            _price(pick(7, 2**53)),
            pc.if_else(popular, named, numbered),
            url,
            self._time(number),
            self._extra(number, "bid"),
        )

    def _person(self, number: Ints, hot: npt.NDArray[np.bool_], chance: Ints) -> Ints:
        """The hot one of the last hundred people, or any that is active."""
        known = number // _ALL + 1
        active = np.maximum(0, known - _ACTIVE_PEOPLE)
        return _FIRST_ID + np.where(hot, (known - 1) // 100 * 100, active + chance % (known - active))

    def _time(self, number: Ints) -> Ints:
        return _START + number * 1_000_000 // self._rate

    def _extra(self, number: Ints, salt: str) -> pa.Array:
        """Some letters, of which there may be several alike."""
        pick = self._picker(number, f"{salt} extra")
        letters = [_choice("abcdefgh", pick(place, 8)) for place in range(6)]
        return pc.binary_join_element_wise(*letters, "")

    def _picker(self, number: Ints, salt: str) -> _Picker:
        return _Picker(self._seed, number, salt)

    def _table(self, name: str, *columns: object) -> pa.Table:
        fields = [field.rsplit(" ", 1) for field in SCHEMAS[name].split(", ")]
        kinds = {"bigint": pa.int64(), "string": pa.string(), "timestamp": pa.timestamp("us", tz="UTC")}
        arrays = [
            column.cast(kinds[kind]) if isinstance(column, pa.Array) else pa.array(column, pa.int64()).cast(kinds[kind])
            for column, (_, kind) in zip(columns, fields, strict=True)
        ]
        return pa.table(arrays, names=[field for field, _ in fields])


class _Picker:
    """Numbers that are a function of the seed, the event and the place where they are needed."""

    def __init__(self, seed: int, number: Ints, salt: str) -> None:
        base = int.from_bytes(salt.encode()[:8].ljust(8, b"."), "little") ^ (seed * 0x9E3779B97F4A7C15)
        self._base = _mixed(number.astype(np.uint64) + np.uint64(base % 2**64))

    def __call__(self, place: int, below: int) -> Ints:
        """A number from 0 to ``below - 1`` for each event."""
        found: Ints = (_mixed(self._base + np.uint64(place + 1)) % np.uint64(below)).astype(np.int64)
        return found


def _mixed(words: Words) -> Words:
    """splitmix64's finaliser: every bit of the result depends on every bit of the word."""
    with np.errstate(over="ignore"):
        words = words * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def _price(chance: Ints) -> Ints:
    """From a hundred to a hundred million cents, as many of each order of magnitude."""
    # Of a table of whole numbers: the last bit of a power may differ from machine to machine.
    steps = np.array([round(100 * 10 ** (step / 1000)) for step in range(6000)], dtype=np.int64)
    return steps[chance % len(steps)]


def _choice(values: tuple[str, ...] | str, place: Ints) -> pa.Array:
    return pa.array(list(values)).take(pa.array(place))


def _text(number: Ints) -> pa.Array:
    return pa.array(number).cast(pa.string())


def _padded(number: Ints, width: int) -> pa.Array:
    return pc.utf8_lpad(_text(number), width, "0")
