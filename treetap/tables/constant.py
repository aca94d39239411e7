"""Columns that say nothing: one value in every record, or no value at all. No tree splits at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from treetap.tables.categories import Category


def constant_columns(
    sources: Sequence[str],
    names: Sequence[str],
    features: npt.NDArray[np.float64],
    categories: Mapping[str, Category],
    *,
    one_hot: bool,
) -> dict[str, str]:
    """The constant ones of these columns of a file, in their order, with what is wrong with each in words.

    A value in some records that is missing in others is none. `names`: of the `features` (N, d) that the columns became
    by their `categories`. `one_hot`: look at columns encoded so too, in which all features have to be constant.
    """
    place = {name: number for number, name in enumerate(names)}
    found = {}
    for column in sources:
        category = categories.get(column)
        if category is not None and category.encode == "one-hot" and not one_hot:
            continue
        made = [column] if category is None else category.features
        blocks = [features[:, place[name]] for name in made if name in place]
        if not blocks or not all(_is_constant(block) for block in blocks):
            continue
        found[column] = "has no value at all" if all(np.isnan(block).all() for block in blocks) else "is constant"
    return found


def in_words(constant: Mapping[str, str]) -> str:
    """All of them, for a reader who may see a party's columns."""
    return ", ".join(f"column {name!r} {fault}" for name, fault in constant.items())


def _is_constant(values: npt.NDArray[np.float64]) -> bool:
    absent = np.isnan(values)
    if absent.any():
        return bool(absent.all())
    return bool(len(values) == 0 or values.min() == values.max())
