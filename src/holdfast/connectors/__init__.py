"""Sources and sinks: where collections come from, and where changes go.

Private: it may change from one version to the next. `holdfast` exports what is for users: `Source`, `Part`, `Sink`,
`Input`, and the functions that make them.
"""

from __future__ import annotations

from holdfast.connectors.changelog import Changelog, changelog
from holdfast.connectors.files import Files, files
from holdfast.connectors.foreach import Foreach, foreach
from holdfast.connectors.input import Input, KeyedInput, Pending
from holdfast.connectors.rate import Rate, rate
from holdfast.connectors.sink import Sink
from holdfast.connectors.source import Offer, Part, Source
from holdfast.connectors.table import Table, table

__all__ = [
    "Changelog", "Files", "Foreach", "Input", "KeyedInput", "Offer", "Part", "Pending", "Rate", "Sink", "Source",
    "Table", "changelog", "files", "foreach", "rate", "table",
]  # fmt: skip
