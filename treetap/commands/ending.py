"""Signals that end a command as Ctrl-C does, and calls that they end."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from treetap.process.together import ended

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
        for ours in before:
            signal.signal(ours, signal.SIG_IGN)
        came.append(signal.Signals(number))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        loop.call_soon_threadsafe(_cancel_all)  # also wakes the loop

    here = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in numbers} if here else {}
    before = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, end)
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call in the event loop of all calls, and what it tells (`tell`) in this thread; a signal here cancels it.

    One loop for the process, in a thread of its own: gRPC has one poller for all loops, which complains of each
    that was closed. A signal ends the call, never the making of the loop.
    """
    told: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    result: Future[T] = Future()
    tasks: list[asyncio.Task[None]] = []
    loop: asyncio.AbstractEventLoop | None = None

    async def called() -> None:
        try:
            result.set_result(await call)
        except BaseException as failure:  # noqa: BLE001 - raised again below, in the thread that waits
            result.set_exception(failure)

    def begin(loop: asyncio.AbstractEventLoop, context: Context) -> None:
        tasks.append(loop.create_task(called(), context=context))
        tasks[0].add_done_callback(end)

    def end(_: asyncio.Task[None]) -> None:
        call.close()  # it may have been cancelled before it began
        if not result.done():
            result.set_exception(asyncio.CancelledError())
        told.put(None)

    over = False
    with _hearing_ctrl_c():
        try:
            with undisturbed():
                context = copy_context()
                context.run(_told.set, told)
                loop = _loop_of_calls()
                loop.call_soon_threadsafe(begin, loop, context)
            while (work := told.get()) is not None:
                work()
            over = True
        finally:
            if loop is None:
                call.close()
            elif not over:
                loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108 - it begins before that
                while not result.done() and told.get() is not None:
                    pass  # it cleans up, and tells nothing more
    return result.result()


async def tell(work: Callable[..., T], *given: Any) -> T:
    """The result of a function in the thread whose `run` this is; an error of it ends that, and this call with it."""
    told = _told.get(None)
    if told is None:
        return work(*given)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def worked() -> None:
        loop.call_soon_threadsafe(heard, work(*given))

    def heard(value: T) -> None:
        if not answer.done():
            answer.set_result(value)

    told.put(worked)
    return await answer


@contextmanager
def _hearing_ctrl_c() -> Iterator[None]:
    """Have Ctrl-C interrupt this thread also where an event loop runs in it, as in a notebook.

    `asyncio.run` has it cancel the task of the caller, who waits here and would not notice.
    """
    before = signal.getsignal(signal.SIGINT)
    heard = threading.current_thread() is threading.main_thread() and before != signal.SIG_IGN
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        heard = False
    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        if heard:
            signal.signal(signal.SIGINT, before)


#: Functions for the thread that waits in `run`, and at their end None.
_told: ContextVar[SimpleQueue[Callable[[], None] | None] | None] = ContextVar("told", default=None)
_making = threading.Lock()
_calls: asyncio.AbstractEventLoop | None = None


def _loop_of_calls() -> asyncio.AbstractEventLoop:
    global _calls  # noqa: PLW0603 - one for the process
    with _making:
        if _calls is None:
            _calls = asyncio.new_event_loop()
            thread = threading.Thread(target=_calls.run_forever, name="treetap-calls", daemon=True)
            thread.start()
            atexit.register(_end_loop, _calls, thread)
        return _calls


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    global _calls  # noqa: PLW0603 - a call after this has another one
    if loop is _calls:  # else this is a fork, without the thread
        _calls = None
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(1.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1.0)
        if not thread.is_alive():
            loop.close()


async def _end_tasks() -> None:
    """Cancel what gRPC still does for calls that have ended, as `asyncio.run` would: a closed loop complains of it."""
    await ended(asyncio.all_tasks() - {asyncio.current_task()})


def _forget_loop() -> None:
    global _calls, _making
    _calls, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)


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
