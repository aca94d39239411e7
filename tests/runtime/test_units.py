"""Every kernel finishes a unit of work at least once a second, so that one that is silent for longer hangs."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.pivodl import small_job
from tests.serving.served import LABEL_HOLDER, config, serve
from tests.simulator import Federation, finished
from tests.trainings import jobs_of, policies
from tests.worlds import FOUR, spec, world
from treetap import usage
from treetap.additive.paillier import shared_sums
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums import comparison, key_holder
from treetap.additive.sums.kernels import Held, HeldTree
from treetap.additive.sums.masked_sums import EntryMember
from treetap.lattice import kernels as lattice
from treetap.protocols.prediction import predict_request
from treetap.psi import lists
from treetap.trees.params import BoostingParams
from treetap.workers.engines import Engine

pytestmark = pytest.mark.second_tier

T = TypeVar("T")
PARTS = (Held, HeldTree, lattice._Member)
FUNCTIONS: set[object] = {
    *(lists.blind, lists.raise_points, lists.check_points),
    *(lists.blind_summed, lists.raise_signed, lists.raise_summed, lists.check_summed),
    *(key_holder._encrypt, key_holder._open, SecretKey.prove, EntryMember._mask, EntryMember._pack),
    *(comparison.blinded, comparison._open, lattice._encrypt, shared_sums._encrypt, shared_sums._add),
}
#: A training from spread labels that sums up its labels and compares gains.
SHARED = replace(small_job.PARAMS, n_estimators=1, max_depth=1, gain_comparison="secure")
#: CPU seconds, at the key size that is the default; the shortest `silence_s` is five times as long.
LONGEST_S = 1.0


@pytest.fixture(autouse=True, scope="module")
def _small_tables() -> None:
    """Leave windows of powers as they are: how long their tables take is to be seen."""


class Clocked:
    """Units of threads, which notes the longest time between two of them, by kernel."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.kernel = ""
        self._since = 0.0

    def __getitem__(self, thread: int) -> int:
        return 0

    def __setitem__(self, thread: int, finished: int) -> None:
        now = time.process_time()
        if self.kernel:
            self.longest[self.kernel] = max(self.longest.get(self.kernel, 0.0), now - self._since)
        self._since = now

    def within(self, kernel: Callable[..., Any]) -> None:
        """A kernel begins."""
        self[0] = 0
        self.kernel = f"{kernel.__module__}.{kernel.__qualname__}"
        self._since = time.process_time()

    def end(self) -> None:
        """It ends, which is a unit too."""
        self[0] = 0
        self.kernel = ""


def _kernels() -> set[str]:
    """All methods of workers' parts, and the functions that workers call."""
    public = {method for part in PARTS for name, method in vars(part).items() if name[0] != "_"}
    return {f"{kernel.__module__}.{kernel.__qualname__}" for kernel in public | FUNCTIONS if inspect.isfunction(kernel)}


@pytest.mark.long
@pytest.mark.campaign
async def test_units_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of every protocol, aligned by psi, and encrypted predictions of a chain, one served: every kernel."""
    clock = Clocked()
    monkeypatch.setattr(usage, "FINISHED", clock)

    class Watched(Engine):
        async def call(self, worker: int, kernel: Callable[..., T], *args: Any, us: float = 0.0) -> T:
            clock.within(kernel)
            try:
                return await super().call(worker, kernel, *args, us=us)
            finally:
                clock.end()

        def begin(self, worker: int, kernel: Callable[..., Any], *args: Any) -> None:
            clock.within(kernel)
            super().begin(worker, kernel, *args)
            clock.end()

    here = world(30, (1, 1, 1, 1), seed=3, fresh=4)
    params = BoostingParams(n_estimators=1, max_depth=2, max_bin=4, min_child_weight=0.0)

    assert FOUR[3] in here.tables
    clients = {LABEL_HOLDER: config()}
    proven = {name: {"keys": {"alignment_proof": True}} for name in here.tables}
    two = {name: here.tables[name] for name in FOUR[:2]}
    federation = Federation(tmp_path / "two", two, policies=proven, engine=lambda _: Watched())
    assert (await federation.train(spec(params, 2, alignment="psi", key_bits=2048))).state == "finished"
    await federation.close()
    federation = Federation(tmp_path, here.tables, policies=proven, engine=lambda _: Watched(), serve=clients)
    for job, about in (("job", params), ("forest", jobs_of("forest").PARAMS)):
        finished(await federation.train(spec(about, 4, alignment="psi", key_bits=2048), job))
    for protocol in ("eini", "eini-lattice"):
        more = {"key_bits": 2048} if protocol == "eini" else {}
        finished(await federation.predict(predict_request(protocol, model="job", block=2, **more)))
    await serve(federation, protocol="eini-lattice")  # the last member draws noise ahead
    await federation.close()
    shared = spec(SHARED, alignment="psi", key_bits=2048)
    federation = Federation(
        tmp_path / "shared", small_job.HERE.tables, policies=policies(shared), engine=lambda _: Watched()
    )
    assert (await federation.train(shared)).state == "finished"
    await federation.close()
    missed = _kernels() - set(clock.longest)
    early = {f"treetap.lattice.kernels._Member.{method}" for method in ("drop", "ended")}  # of blocks that end early
    assert missed <= early
    slow = {kernel: round(longest, 2) for kernel, longest in clock.longest.items() if longest > LONGEST_S}
    assert slow == {}
