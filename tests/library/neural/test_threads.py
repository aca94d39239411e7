"""Threads of an operation are those of the job, whatever other work of the process has asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import TypeVar

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.library.neural.worlds import World  # noqa: E402
from treetap.neural.numbers import pin  # noqa: E402
from treetap.neural.params import Bottom, SplitnnParams  # noqa: E402

pytestmark = pytest.mark.second_tier

Found = TypeVar("Found")


def on_a_thread(work: Callable[[], Found]) -> Found:
    """The result of work on a thread of its own."""
    found: list[Found] = []
    thread = Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(60)
    return found[0]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave this thread, and those that begin later, as they were."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def pinned(threads: int) -> int:
    """The threads of this thread's operations after `pin`."""
    pin(threads)
    return int(torch.get_num_threads())


def test_the_number_is_that_of_the_calling_thread() -> None:
    """A thread that pins 3 does not change this one; a new thread begins with what was set last, hence `pin`."""
    pin(1)
    assert on_a_thread(lambda: pinned(3)) == 3
    assert torch.get_num_threads() == 1
    assert on_a_thread(torch.get_num_threads) == 3
    assert on_a_thread(lambda: pinned(1)) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_each_piece_of_work_pins_the_job_s_threads(threads: int) -> None:
    """Forward, backward, a batch, scores and embeddings, each on a thread that began with another number."""
    params = SplitnnParams(batch_size=8, threads=threads, bottom={"default": Bottom(width=2)})
    world = World(params, classes=2)
    sides, rows = world.federation(), np.arange(8)
    shop, seen = sides.others["shop"], []

    def after(work: Callable[[], Found]) -> Found:
        on_a_thread(lambda: torch.set_num_threads(3))

        def watched() -> Found:
            assert torch.get_num_threads() == 3
            found = work()
            seen.append(torch.get_num_threads())
            return found

        return on_a_thread(watched)

    received = after(lambda: shop.forward(rows))
    trained = after(lambda: sides.holder.train(rows, {"shop": received}, 0, 0, 0.1))
    after(lambda: shop.backward(trained.gradients["shop"], 0.1, 0, 0))
    embedded = after(lambda: shop.embed(rows))
    after(lambda: sides.holder.scores(rows, {"shop": embedded}))
    after(lambda: world.central().train_epoch(0))
    assert seen == [threads] * 6


def test_threads_of_operations_that_are_pinned_give_the_same_bits() -> None:
    """A training on a thread that began with other threads has the weights of one on this thread."""
    params = SplitnnParams(batch_size=8, epochs=2, bottom={"default": Bottom(hidden=(4,), width=2)})
    world = World(params, classes=2)
    here = world.federation().train().weights()
    on_a_thread(lambda: torch.set_num_threads(3))
    there = on_a_thread(lambda: world.federation().train().weights())
    assert all(np.array_equal(here["shop"][name], values) for name, values in there["shop"].items())
