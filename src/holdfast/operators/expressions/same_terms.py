"""Terms that Spark considers equal, and the consequences for terms that can fail.

Spark's ``semanticEquals`` flattens chains of ``+`` and of ``*`` and ignores the order of their operands. Spark computes
such *twins* once, before everything else. So twins that are written differently may get each other's bits (a + b + c
is not c + b + a in doubles, and integers may overflow on other rows). And a twin that would not be evaluated, because
the operand before it is NULL, is evaluated nevertheless. So Spark must run a stretch with such twins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from holdfast.operators.expressions.arithmetic import Arithmetic, Divide
from holdfast.operators.expressions.decimals import DecimalArithmetic, DecimalDivide
from holdfast.operators.expressions.terms import ColumnTerm, Compare, Constant, Term

_SUMS_AND_PRODUCTS = (Arithmetic, DecimalArithmetic)


def operands_of(term: Term) -> list[Term]:
    """The operands of a chain of one commutative operator: a, b, c for (a + b) + c. For any other term, the term
    itself."""
    if not isinstance(term, _SUMS_AND_PRODUCTS) or term.operator == "-":
        return [term]
    found: list[Term] = []
    for side in (term.left, term.right):
        # In a chain of decimals, every operation has another type.
        alike = type(side) is type(term) and (isinstance(term, DecimalArithmetic) or side.type == term.type)
        alike = alike and getattr(side, "operator", "") == term.operator
        found.extend(operands_of(side) if alike else [side])
    return found


def meaning(term: Term) -> str:
    """A text that is equal for all terms that Spark may consider equal."""
    if isinstance(term, ColumnTerm):
        return f"#{term.position}"
    if isinstance(term, Constant):
        return repr(term)
    chain = operands_of(term)
    if len(chain) > 1 and isinstance(term, _SUMS_AND_PRODUCTS):
        return f"({f' {term.operator} '.join(sorted(meaning(operand) for operand in chain))})"
    if isinstance(term, Compare):
        # For Spark, a > b equals b < a, and a = b equals b = a. So it may evaluate either operand first.
        sides = [meaning(term.left), meaning(term.right)]
        sides = sorted(sides) if term.operator == "=" else sides[::-1] if term.operator in (">", ">=") else sides
        return f"Compare[{term.operator.replace('>', '<')}]({', '.join(sides)})"
    # Coarser than in Spark: of the fields that are not operands, only the operator and the type are used.
    inner = ", ".join(meaning(operand) for operand in term.operands)
    return f"{type(term).__name__}[{getattr(term, 'operator', '')} {term.type}]({inner})"


def same_meaning(left: Term, right: Term) -> bool:
    return meaning(left) == meaning(right)


def has_twins(roots: Sequence[Term]) -> bool:
    """Whether a term among those computed in one pass has a twin that makes its result uncertain."""
    seen: dict[str, list[tuple[Term, bool]]] = defaultdict(list)
    for root in roots:
        for term, lazy in _walk(root, lazy=False):
            if isinstance(term, _SUMS_AND_PRODUCTS) or term.raises:
                seen[meaning(term)].append((term, lazy))
    for twins in seen.values():
        if len(twins) < 2:
            continue
        if any(term != twins[0][0] for term, _ in twins):
            return True
        if twins[0][0].raises and any(lazy for _, lazy in twins):
            return True
    return False


def _walk(term: Term, lazy: bool) -> Iterator[tuple[Term, bool]]:
    """The term and all terms below it; and whether Spark may skip each, because the operand before it is NULL."""
    yield term, lazy
    second = {Arithmetic: 1, DecimalArithmetic: 1, Compare: 1, Divide: 0, DecimalDivide: 0}.get(type(term))
    for index, operand in enumerate(term.operands):
        yield from _walk(operand, lazy or index == second)
