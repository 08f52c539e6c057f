"""The entries in the footer of a layer beside the description of its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping

LINEAGE = "holdfast.lineage"
"""In layers of old versions: the lineage of epochs. It is not written any more: the offers of an epoch that takes
thousands of files are written once, with the lineage, and not to each of its layers (`log/begun_epochs.py`)."""

ANSWERS = "holdfast.answers"
"""In local layers of an operator that calls nondeterministic functions: the answers for the layer's key hashes. They
are nowhere else until the epoch is complete and its lineage is written."""


def answers_footer(answers: Mapping[str, str]) -> dict[str, str]:
    """The footer entry with the answers for a layer; it is also written if there are none."""
    return {ANSWERS: json.dumps(dict(answers), sort_keys=True, separators=(",", ":"))}
