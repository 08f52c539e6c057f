"""Skewness, kurtosis and covariance, from exact sums of powers and products.

For n values with the sums of powers S1 to S4, everything is a quotient of exact integers:

    M2 = n·S2 - S1²        M3 = n²·S3 - 3n·S1·S2 + 2·S1³        M4 = n³·S4 - 4n²·S1·S3 + 6n·S1²·S2 - 3·S1⁴
    skewness = M3 / M2^(3/2)        kurtosis = M4 / M2² - 3

and a covariance is n·Σxy - Σx·Σy over n·n or n·(n - 1). So no digits are lost by cancellation, and only the quotient is
rounded.
"""

from __future__ import annotations

import numpy as np

from holdfast.operators.numbers.digits import Digits, Floats, Ints, from_int64, multiply, rounded, scaled, subtract


def second_moment(many: Digits, sums: Digits, squares: Digits) -> Digits:
    """M2: n² times the variance."""
    return subtract(multiply(many, squares), multiply(sums, sums))


def skewness(powers: list[Digits], counts: Ints) -> Floats:
    """The skewness, given the sums of powers 1 to 4; NaN where all values are equal."""
    many, (first, second, third, _) = from_int64(counts), powers
    cube = multiply(first, multiply(first, first))
    whole = subtract(multiply(many, multiply(many, third)), scaled(multiply(many, multiply(first, second)), 3))
    top, high = rounded(subtract(whole, scaled(_negative(cube), 2)), len(counts))
    bottom, low = _even(*rounded(second_moment(many, first, second), len(counts)))
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Floats = np.ldexp(top / np.abs(bottom) ** 1.5, high - low // 2 * 3)
    return result


def kurtosis(powers: list[Digits], counts: Ints) -> Floats:
    """The kurtosis, given the sums of powers 1 to 4; NaN where all values are equal."""
    many, (first, second, third, fourth) = from_int64(counts), powers
    square = multiply(first, first)
    whole = multiply(many, multiply(many, multiply(many, fourth)))
    whole = subtract(whole, scaled(multiply(multiply(many, many), multiply(first, third)), 4))
    whole = subtract(whole, scaled(_negative(multiply(many, multiply(square, second))), 6))
    top, high = rounded(subtract(whole, scaled(multiply(square, square), 3)), len(counts))
    bottom, low = rounded(second_moment(many, first, second), len(counts))
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Floats = np.ldexp(top / (bottom * bottom), high - 2 * low) - 3.0
    return result


def covariance(sums: tuple[Digits, Digits], products: Digits, counts: Ints, *, sample: bool, scale: int) -> Floats:
    """The covariance, given Σx, Σy and Σxy. ``scale``: the decimal places of the products."""
    joint = subtract(multiply(from_int64(counts), products), multiply(*sums))
    top, high = rounded(joint, len(counts))
    many = counts.astype(np.float64)
    divisor = many * (many - 1.0 if sample else many) * float(10**scale)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(top / np.maximum(divisor, 1.0), high)


def _negative(digits: Digits) -> Digits:
    return {q: -column for q, column in digits.items()}


def _even(mantissa: Floats, exponent: Ints) -> tuple[Floats, Ints]:
    """The same numbers with even exponents, so that the exponents of their square roots are whole."""
    odd = exponent % 2
    return mantissa * (1.0 + odd), exponent - odd
