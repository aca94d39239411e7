"""What several protocol tests share."""

from __future__ import annotations

import pytest

from tests.protocol.replay import Conducted, conducted


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Conducted, Conducted]:
    """What a coordinator asks for in a training and in a prediction."""
    return conducted(tmp_path_factory.mktemp("conducted") / "federation")
