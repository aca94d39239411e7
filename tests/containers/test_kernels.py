"""What the image holds: kernels, compiled in its first stage and named by doctor, and no attack."""

from __future__ import annotations

import pytest

from tests.containers.bare_demo import auto_with_kernels
from tests.containers.composed import Composed
from treetap.commands.lazy import LEFT_OUT

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


def test_the_image_of_a_party_leaves_out_attacks_and_laboratory(serving: Composed) -> None:
    """Its files are not there, and a command of theirs is refused by its name, with what brings it."""
    container = serving.container("label-holder")
    status, output = container.exec_run(["treetap", "audit", "runs/x"])
    assert (status, output.decode()) == (2, f"treetap: {LEFT_OUT.format(name='audit', wing='lab')}\n")
    status, output = container.exec_run(["python", "-c", "import treetap; print(*treetap.__path__)"])
    folder = output.decode().strip()
    status, output = container.exec_run(["ls", folder])
    assert {"party", "coordinator", "ops"} <= (held := set(output.decode().split()))
    assert held.isdisjoint({"attacks", "lab"})
