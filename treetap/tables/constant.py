"""Columns that say nothing: one value in every record, or no value at all. No tree splits at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treetap.tables.categories import Category
from treetap.tables.features import Extent


def constant_columns(
    sources: Sequence[str],
    features: Mapping[str, Extent],
    categories: Mapping[str, Category],
    *,
    one_hot: bool = False,
) -> dict[str, str]:
    """The constant ones of these columns of a file, in their order, with what is wrong with each in words.

    A value in some records that is missing in others is none. `features`: those that the columns became by their
    `categories`. `one_hot`: look at columns encoded so too, in which all features have to be constant.
    """
    faults = {}
    for column in sources:
        category = categories.get(column)
        if category is not None and category.encode == "one-hot" and not one_hot:
            continue
        made = [column] if category is None else category.features
        extents = [features[name] for name in made if name in features]
        if not extents or not all(extent.constant for extent in extents):
            continue
        faults[column] = "has no value at all" if all(extent.empty for extent in extents) else "is constant"
    return faults


def in_words(constant: Mapping[str, str]) -> str:
    """All of them, for a reader who may see a party's columns."""
    return ", ".join(f"column {name!r} {fault}" for name, fault in constant.items())
