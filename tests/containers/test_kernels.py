"""The image's kernels: compiled in its first stage, whichever processor builds it, and named by doctor."""

from __future__ import annotations

import pytest

from tests.containers.bare_demo import auto_with_kernels
from tests.containers.composed import Composed

# The image is built and a federation runs before the first test.
pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("containers"),
]


def test_doctor_names_the_kernels_of_the_image(serving: Composed) -> None:
    """The build fetches a compiler, which is not in the image; a processor without AVX2 is the reason for gmpy2."""
    container = serving.container("label-holder")
    _, output = container.exec_run(["treetap", "doctor", "--config", "/etc/treetap/party.toml"])
    said = " ".join(output.decode().split())
    assert "the native kernels were compiled by ziglang: clang" in said
    backend = auto_with_kernels()
    assert f"auto: {backend}, as the processor has {'no AVX2 and FMA' if backend == 'gmpy2' else ''}" in said
    status, _ = container.exec_run(["sh", "-c", "command -v cc gcc clang || python -c 'import ziglang'"])
    assert status != 0
