"""Signals that end a command as Ctrl-C does, and calls that they end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
#: Raised in a block of `as_ctrl_c` that a signal ends: outside, or inside `asyncio.run`.
ENDED = (KeyboardInterrupt, asyncio.CancelledError)


@contextmanager
def as_ctrl_c(*numbers: signal.Signals) -> Iterator[list[signal.Signals]]:
    """End the block by one of `ENDED` at the first of these signals; yields the list of those that came.

    While an event loop runs, its tasks are cancelled: an exception out of the handler could rise in the midst of
    gRPC's native code and damage its memory. Further signals are ignored until the block ends, so that they do not
    disturb its cleaning. A signal that was ignored before, as after nohup, stays so; and so are all in another thread
    than the main one, where Python takes no signals.
    """
    came: list[signal.Signals] = []

    def end(number: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        came.append(signal.Signals(number))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        loop.call_soon_threadsafe(_cancel_all)  # also wakes the loop

    here = threading.current_thread() is threading.main_thread()
    found = {number: signal.getsignal(number) for number in numbers} if here else {}
    before = {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, end)
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call in an event loop of its own; where a loop runs in this thread, as in a notebook, in another thread.

    A signal ends the call, never the making of its loop: a loop that is half made complains on the operator's screen.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(call)
    return _run_beside(call)


def _run_here(call: Coroutine[Any, Any, T]) -> T:
    try:
        with closing(asyncio.Runner()) as runner:
            with undisturbed():
                runner.get_loop()
            return runner.run(call)
    finally:
        call.close()  # a Ctrl-C before it began; else Python warns of it on the operator's screen


def _run_beside(call: Coroutine[Any, Any, T]) -> T:
    """Run a call in the event loop of another thread; an exception that a signal raises here cancels it there."""

    async def called() -> T:
        entered.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await call

    # asyncio.run has a Ctrl-C cancel the task of its caller, who waits here and would not notice
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    heard = here and before != signal.SIG_IGN
    entered: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix="treetap-call") as thread:
        result = thread.submit(_run_here, called())
        try:
            if heard:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return result.result()
        except KeyboardInterrupt:
            loop, task = entered.result()
            if task is not None and not result.done():
                loop.call_soon_threadsafe(task.cancel)
            raise  # the block's end waits for the thread
        finally:
            if heard:
                signal.signal(signal.SIGINT, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals that end this process until the block ends: their exceptions could rise anywhere within it."""
    came: list[int] = []
    before = {}
    here = threading.current_thread() is threading.main_thread()
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT) if here else ():
            before[number] = signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
