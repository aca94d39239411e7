"""A worker that dies or is late while a caller goes: no call goes on without a caller, and no error is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.kernels import CandidateSums
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import Interrupted
from treetap.lattice.kernels import LatticeKeyHolder
from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import LatticeKey
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, InWorkers

pytestmark = pytest.mark.real_time

KEY = SecretKey.generate(1024)
SLOTS = Slots((20, 20, 10))
BLOCK = KEY.encrypt_many(SLOTS.encode([np.ones(2, dtype=np.int64)] * 3), "standard")


class LateWorker(Engine):
    """One worker, whose calls wait until `go` is set; then they are carried out, or it has died."""

    def __init__(self, *, dies: bool) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self._dies = dies

    async def call(self, worker: int, kernel: Callable[..., Any], *args: Any, us: float = 0.0) -> Any:
        await self.go.wait()
        if self._dies:
            raise Interrupted("compute worker 0 died")
        return await super().call(worker, kernel, *args, us=us)


class OneDies(Engine):
    """Three workers: the second dies at once, the others work for ever."""

    def __init__(self) -> None:
        super().__init__(3)

    async def call(self, worker: int, kernel: Callable[..., Any], *args: Any, us: float = 0.0) -> Any:
        if worker == 1:
            raise Interrupted("compute worker 1 died")
        await asyncio.get_running_loop().create_future()


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("call", ["add_block", "candidates"])
async def test_a_tree_that_is_dropped_while_it_opens_leaves_nothing(dies: bool, call: str) -> None:
    """Its caller is cancelled while a worker is late with the first call; what the worker then does changes nothing."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: lost.append(told))
    engine = LateWorker(dies=dies)
    sums = EncryptedSums(engine, KEY.public, SLOTS, np.zeros((2, 1), dtype=np.uint8), [(2, False)])
    begun = sums.add_block(np.arange(2), BLOCK) if call == "add_block" else sums.candidates(None, np.arange(1))
    step = asyncio.ensure_future(begun)
    for _ in range(5):
        await asyncio.sleep(0)
    step.cancel()
    await asyncio.wait({step})
    await sums.close()
    engine.go.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert sums._parts == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del sums, step, begun
    gc.collect()  # which logs an error that was never retrieved
    assert lost == []


async def test_a_block_that_was_cancelled_while_the_tree_opened_may_come_again() -> None:
    """It has changed nothing."""
    engine = LateWorker(dies=False)
    sums = EncryptedSums(engine, KEY.public, SLOTS, np.zeros((2, 1), dtype=np.uint8), [(2, False)])
    first = asyncio.ensure_future(sums.add_block(np.arange(2), BLOCK))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    engine.go.set()
    await sums.add_block(np.arange(2), BLOCK)
    owner = KeyHolder(engine, KEY, SLOTS, "standard")
    await owner.start()
    assert (await owner.open(await sums.candidates(None, np.arange(1)), 1)).tolist() == [[2, 2, 2]]


def _with_parts(made: InWorkers) -> Any:
    made._parts = [None] * 3
    return made


def _lattice_keys() -> LatticeKeyHolder:
    return LatticeKeyHolder(OneDies(), LatticeKey(Parameters(8192, 4, 20, 12, 1)))


CALLS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "everywhere": lambda: _with_parts(CandidateSums(OneDies(), KEY.public, Slots((1,)), 0)).everywhere(id, (), (), ()),
    "make": lambda: InWorkers(OneDies())._make(dict),
    "open": lambda: _with_parts(KeyHolder(OneDies(), KEY, SLOTS, "standard")).open(
        bytes(3 * KEY.public.ciphertext_bytes), 3 * SLOTS.groups_per_plaintext(1022)
    ),
    "open sums of lattices": lambda: _lattice_keys().open([b"", b"", b""], 1),
}


@pytest.mark.parametrize("what", CALLS)
async def test_when_one_worker_dies_the_others_calls_have_ended(what: str) -> None:
    """Their results have no taker; a kernel that waits in a worker's queue is not begun."""
    with pytest.raises(Interrupted, match="worker 1 died"):
        await CALLS[what]()
    assert asyncio.all_tasks() == {asyncio.current_task()}
