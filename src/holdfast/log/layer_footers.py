"""What the footer of a layer says beside the shape of its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping

LINEAGE = "holdfast.lineage"
"""In layers of old: the lineage of epochs. It is not written any more: an epoch that takes thousands of files says so
in the lineage, once, and not in each of its layers (`log/begun_epochs.py`)."""

ANSWERS = "holdfast.answers"
"""In local layers of an operator that asks outside: what was answered for their part of the key hashes. It is all there
is of the answers until the driver has said that the epoch is complete."""


def answers_footer(answers: Mapping[str, str]) -> dict[str, str]:
    """The footer of a layer of an operator that asks outside; it says also that nothing was asked."""
    return {ANSWERS: json.dumps(dict(answers), sort_keys=True, separators=(",", ":"))}
