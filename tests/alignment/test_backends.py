"""Parties that compute with different arithmetic find the same records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.alignment.test_protocol import NAMES, job, tables, watched
from tests.native.forms import HERE
from tests.simulator import Federation, finished
from treetap.native import arithmetic
from treetap.workers.engines import Engine

T = TypeVar("T")

pytestmark = [
    pytest.mark.usefixtures("same_arithmetic_after"),
    pytest.mark.skipif(not HERE, reason="the kernels were not compiled"),
]


class _Engine(Engine):
    """Workers of a party that computes with one arithmetic, as its workers' processes would."""

    def __init__(self, name: arithmetic.Name, used: list[str]) -> None:
        super().__init__()
        self._name, self._used = name, used

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any, us: float = 0.0) -> T:
        before = arithmetic.in_use()
        if not kernel.__module__.startswith("treetap.psi"):
            return await super().call(worker, kernel, *args, us=us)
        arithmetic.use(self._name)
        self._used.append(f"{self._name} {kernel.__name__}")
        try:
            return await super().call(worker, kernel, *args, us=us)
        finally:
            arithmetic.use(before)


@pytest.mark.parametrize(
    "names",
    [
        *((form, "gmpy2") for form in HERE),
        pytest.param(("gmpy2", HERE[-1], "gmpy2"), marks=pytest.mark.second_tier),
        pytest.param((*HERE, "gmpy2"), marks=pytest.mark.second_tier),
    ],
    ids="-".join,
)
async def test_parties_with_the_kernels_meet_one_with_libsodium(
    names: tuple[arithmetic.Name, ...], tmp_path: Path
) -> None:
    """Every step of the alignment is done with each arithmetic, and all parties name the records that all hold."""
    common = [f"c{number:02d}" for number in range(20)]
    ids = [[*common, *(f"{place}-{number}" for number in range(9 + place))] for place in range(len(names))]
    used: list[str] = []

    engines = {name: _Engine(which, used) for name, which in zip(NAMES, names, strict=False)}
    federation = Federation(tmp_path, tables(ids), engine=lambda name: engines[name])
    found = watched(federation)
    finished(await federation.train(job(len(names))))
    await federation.close()
    assert sorted(found[0]) == common
    assert all(each == found[0] for each in found)
    kernels = {"blind", "raise_points", "check_points"}
    assert set(used) == {f"{name} {kernel}" for name in names for kernel in kernels}
