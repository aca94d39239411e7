"""Certificates of everybody, for all tests of a file."""

from __future__ import annotations

import pytest

from tests.approvals.people import certify
from treetap.wire.tls import TlsFiles


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    return certify(tmp_path_factory.mktemp("certificates"))
