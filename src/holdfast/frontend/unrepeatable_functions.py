"""Advice for functions whose value differs at each call, in each run or in each session: what to write instead."""

from __future__ import annotations

INSTEAD = {
    **dict.fromkeys(("current_time", "localtime"), "use current_timestamp() or localtimestamp()"),
    **dict.fromkeys(("current_user", "session_user", "user"), "write the name as a text"),
    **dict.fromkeys(("current_catalog", "current_database", "current_schema", "current_path"), "write it as a text"),
    "current_timezone": "write the time zone as a text",
    **dict.fromkeys(
        ("input_file_name", "input_file_block_start", "input_file_block_length"),
        "a view does not know files; put the name into the data",
    ),
    **dict.fromkeys(
        ("monotonically_increasing_id", "spark_partition_id"),
        "rows have no number and no fixed partition here; use uuid() for a key",
    ),
    **dict.fromkeys(("randstr", "uniform", "shuffle"), "make it of rand() or uuid(), whose values are kept"),
    "aes_encrypt": "give it the mode, the padding and the IV",
}
INSTEAD_OF_ANY = "register a function with flow.udf and hf.nondeterministic: its answers are kept"
"""The advice for any function that is not in `INSTEAD`."""
