"""Manifests, rendered once per run; tests of them share a worker."""

from __future__ import annotations

import pytest

from tests.kubernetes.manifests import Manifests, render
from tests.needs import kustomize_command


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """The objects of every organisation."""
    return render(kustomize_command(), tmp_path_factory.mktemp("kubernetes"))
