"""What is declared of every protocol is what its text says: steps, contents, who sends them to whom, classes."""

from __future__ import annotations

import pytest

from tests.needs import needs_library_of
from tests.protocol_texts import FOLDER, NAMES, text_of


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.second_tier] if name == "splitnn" else []) for name in NAMES]
)
def test_a_protocol_is_as_its_text_says(name: str) -> None:
    """A protocol that is to change has its text written anew: python -m tests.protocol_texts."""
    needs_library_of(name)
    assert text_of(name).splitlines() == (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def test_no_text_is_of_a_protocol_that_is_gone() -> None:
    """Every file belongs to a protocol."""
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(NAMES)
