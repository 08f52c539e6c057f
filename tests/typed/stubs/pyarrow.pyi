# pyarrow ships no types. A user who checks in strict mode installs the package pyarrow-stubs; this is the little of it
# that user_script.py needs, so that what the check finds is about Holdfast.
from collections.abc import Sequence

class Schema: ...

class Table:
    @property
    def num_rows(self) -> int: ...

def table(data: Sequence[Sequence[object]], schema: Schema | None = None) -> Table: ...
