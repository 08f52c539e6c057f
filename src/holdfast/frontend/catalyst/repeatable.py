"""Expressions that Spark computes must give the same value each time: a replay must repeat them, and a deletion must
retract the row as it was emitted.

An expression that Spark calls nondeterministic is refused, unless its value is drawn (`frontend.placeholders`). An
expression that depends on the session, the user or the file being read is refused, too, although Spark calls it
deterministic.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import Unsupported
from holdfast.frontend import unrepeatable_functions
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression

_NAMES = {
    "AesEncrypt": "aes_encrypt",
    "CallMethodViaReflection": "java_method",
    "CurrentCatalog": "current_catalog",
    "CurrentDatabase": "current_database",
    "CurrentPath": "current_path",
    "CurrentTime": "current_time",
    "CurrentTimeZone": "current_timezone",
    "CurrentUser": "current_user",
    "InputFileBlockLength": "input_file_block_length",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileName": "input_file_name",
    "LocalTime": "localtime",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "RandStr": "randstr",
    "SessionUser": "session_user",
    "Shuffle": "shuffle",
    "SparkPartitionID": "spark_partition_id",
    "TryReflect": "try_reflect",
    "Uniform": "uniform",
}
"""Catalyst's classes whose value can differ each time → their SQL names."""


def check_repeatable(
    expression: CatalystExpression, statement: Statement, is_hole: Callable[[CatalystExpression], bool]
) -> None:
    """Refuse an expression that may have another value next time. ``is_hole``: whether a part's value is given to the
    expression."""
    _check_known(expression, statement, is_hole)
    if not statement.catalyst.is_deterministic(expression):
        culprit = _culprit(expression, statement, is_hole)
        if culprit is not None:
            raise _refused(culprit, statement)


def _check_known(
    expression: CatalystExpression, statement: Statement, is_hole: Callable[[CatalystExpression], bool]
) -> None:
    if is_hole(expression):
        return
    if expression.kind in _NAMES and (expression.kind != "AesEncrypt" or _draws_its_own(expression)):
        raise _refused(expression, statement)
    for child in expression.children:
        # Allowed here: Spark adds this call, and the session's time zone is recorded with the view.
        if not (expression.kind == "ConvertTimezone" and child.kind == "CurrentTimeZone"):
            _check_known(child, statement, is_hole)


def _draws_its_own(expression: CatalystExpression) -> bool:
    """Whether it is an ``aes_encrypt`` without an initialisation vector."""
    mode, vector = expression.child("mode"), expression.child("iv")
    while vector.kind == "Cast":
        vector = vector.children[0]
    without = vector.kind == "Literal" and vector.parameters.get("value") == ""
    return without and str(mode.parameters.get("value")).upper() != "ECB"


def _culprit(
    expression: CatalystExpression, statement: Statement, is_hole: Callable[[CatalystExpression], bool]
) -> CatalystExpression | None:
    """Return the innermost part that is nondeterministic by itself; None if there is none."""
    if is_hole(expression):
        return None
    below = [child for child in expression.children if not statement.catalyst.is_deterministic(child)]
    if not below:
        return expression
    return next((found for child in below if (found := _culprit(child, statement, is_hole)) is not None), None)


def _refused(expression: CatalystExpression, statement: Statement) -> Unsupported:
    name = _NAMES.get(expression.kind) or str(expression.parameters.get("udfName") or expression.kind)
    advice = unrepeatable_functions.INSTEAD.get(name, unrepeatable_functions.INSTEAD_OF_ANY)
    return statement.unsupported(f"the nondeterministic function {name}", expression, advice)
