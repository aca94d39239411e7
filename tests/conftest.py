"""What several protocol tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.replay import Conducted


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Conducted, Conducted]:
    """What a coordinator asks for in a training and in a prediction."""
    from tests.replay import conducted  # where it is wanted: other tests begin sooner

    return conducted(tmp_path_factory.mktemp("conducted") / "federation")
