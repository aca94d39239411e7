"""Tests of protocols whose library is an extra: skipped where it is not installed, with what to install."""

from __future__ import annotations

import pytest

from treetap.protocols.libraries import missing_library
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training


def needs_library_of(protocol: str) -> None:
    """Skip the test if the library of a protocol, training or predicting, is not installed."""
    described = [training(protocol)] if protocol in TRAINING else []
    described += [prediction(protocol)] if protocol in PREDICTION else []
    for each in described:
        if missing := missing_library(protocol, each):
            pytest.skip(missing)
