"""The two tables of the AMPLab big-data benchmark, generated.

``rankings`` lists web pages, ``uservisits`` is the log of who visited them. As in the original (the generator of Pavlo
et al., 2009) a few pages get most visits, and here a few visitors make most of them: both are drawn from bounded Zipf
distributions. Addresses are scattered, so that the frequent ones do not sit together. Everything is vectorised, and a
function of the seed.

One liberty: ad revenues are multiples of 1/1024. Sums of such numbers are exact in a double, whatever the order, so the
maintained answer can be compared with a recomputed one bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

RANKINGS = "pageURL string, pageRank int, avgDuration int"
USERVISITS = (
    "sourceIP string, destURL string, visitDate date, adRevenue float, userAgent string, countryCode string, "
    "languageCode string, searchWord string, duration int"
)

_PAGE_SKEW = 1.0
_VISITOR_SKEW = 0.5
_FIRST_DAY, _LAST_DAY = np.datetime64("1970-01-01"), np.datetime64("2012-12-31")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64)",
    "Mozilla/5.0 (Windows NT 6.1)",
    "Opera/9.80",
    "Lynx/2.8.7",
    "Googlebot/2.1",
)
_COUNTRIES = ("USA", "DEU", "IND", "BRA", "JPN", "FRA", "NGA", "AUS", "CHN", "GBR")
_LANGUAGES = ("en", "de", "hi", "pt", "ja", "fr", "en", "en", "zh", "en")
_WORDS = ("kelp", "storm", "rock", "tide", "anchor", "root", "wave", "harbour", "reef", "drift", "salt", "gull", "rope")


@dataclass(frozen=True)
class Sizes:
    """How much to generate."""

    pages: int
    visitors: int
    visits: int
    batches: int

    @staticmethod
    def of(scale: float, batches: int) -> Sizes:
        """Scale 1: 200,000 pages, 100,000 visitors, 2,000,000 visits."""
        pages, visitors = max(10, round(200_000 * scale)), max(10, round(100_000 * scale))
        return Sizes(pages, visitors, batches * max(1, round(2_000_000 * scale / batches)), batches)


class Generator:
    """Makes the tables of one seed."""

    def __init__(self, sizes: Sizes, seed: int = 1980) -> None:
        self.sizes = sizes
        self._random = np.random.default_rng(seed)
        self._urls = _urls(sizes.pages, self._random)
        self._addresses = _addresses(sizes.visitors, self._random)
        self._pages = _zipf(sizes.pages, _PAGE_SKEW)
        self._visitors = _zipf(sizes.visitors, _VISITOR_SKEW)

    def rankings(self) -> pa.Table:
        """Every page once. Frequent pages rank high, with noise."""
        count, random = self.sizes.pages, self._random
        rank = np.floor(10_000 / np.sqrt(np.arange(1, count + 1)) * random.uniform(0.5, 1.5, count)) + 1
        return pa.table(
            {
                "pageURL": self._urls,
                "pageRank": pa.array(rank.astype(np.int32)),
                "avgDuration": pa.array(random.integers(1, 100, count, dtype=np.int32)),
            }
        )

    def visits(self) -> pa.Table:
        """The next batch of visits."""
        count, random = self.sizes.visits // self.sizes.batches, self._random
        days = random.integers(_FIRST_DAY.astype(np.int64), _LAST_DAY.astype(np.int64) + 1, count).astype(np.int32)
        country = random.integers(0, len(_COUNTRIES), count)
        return pa.table(
            {
                "sourceIP": self._addresses.take(pa.array(_drawn(self._visitors, count, random))),
                "destURL": self._urls.take(pa.array(_drawn(self._pages, count, random))),
                "visitDate": pa.array(days).cast(pa.date32()),
                "adRevenue": pa.array((random.integers(0, 1024, count) / 1024).astype(np.float32)),
                "userAgent": _picked(_AGENTS, random.integers(0, len(_AGENTS), count)),
                "countryCode": _picked(_COUNTRIES, country),
                "languageCode": _picked(_LANGUAGES, country),
                "searchWord": _picked(_WORDS, random.integers(0, len(_WORDS), count)),
                "duration": pa.array(random.integers(1, 60, count, dtype=np.int32)),
            }
        )


def _zipf(count: int, skew: float) -> npt.NDArray[np.float64]:
    """The cumulative distribution of ranks 1 … count with weights 1/rank^skew."""
    weights = np.cumsum(1.0 / np.arange(1, count + 1) ** skew)
    return np.asarray(weights / weights[-1], dtype=np.float64)


def _drawn(cumulative: npt.NDArray[np.float64], count: int, random: np.random.Generator) -> Ints:
    return np.searchsorted(cumulative, random.random(count), side="right").clip(max=len(cumulative) - 1)


def _urls(count: int, random: np.random.Generator) -> pa.Array:
    """Distinct texts of 10 to 60 letters: random ones, then a number in letters that tells them apart."""
    lengths = random.integers(2, 53, count)
    letters = random.integers(ord("a"), ord("z") + 1, int(lengths.sum()), dtype=np.uint8)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    texts = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
    number = np.arange(count)
    digits = [(number // 26**place % 26 + ord("a")).astype(np.uint8) for place in range(8)]
    mark = np.stack(digits, axis=1).reshape(-1)
    marks = pa.StringArray.from_buffers(
        count, pa.py_buffer(np.arange(0, 8 * count + 1, 8, dtype=np.int32)), pa.py_buffer(mark)
    )
    return pc.binary_join_element_wise(texts, marks, "")


def _addresses(count: int, random: np.random.Generator) -> pa.Array:
    """Distinct addresses, in no order."""
    # An odd multiplier permutes the 32-bit numbers, so different visitors get different addresses.
    start = int(random.integers(0, 2**32))
    scattered = (np.arange(count, dtype=np.uint64) * np.uint64(2_654_435_761) + np.uint64(start)) % np.uint64(2**32)
    octets = [pa.array((scattered >> np.uint64(shift)) % np.uint64(256)).cast(pa.string()) for shift in (24, 16, 8, 0)]
    return pc.binary_join_element_wise(*octets, ".")


def _picked(words: tuple[str, ...], places: Ints) -> pa.Array:
    return pa.array(words).take(pa.array(places))
