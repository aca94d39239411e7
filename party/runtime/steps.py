"""Idempotent steps: a repeat gets the first result, a step out of order is refused, a failure ends the attempt.

The order itself is `treetap.party.runtime.step_order`. A step continues after its caller has gone, and so may other
work: a failure that no caller receives is logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from treetap.errors import BadInput, Conflict, Interrupted, OutOfOrder, TreetapError
from treetap.party.runtime.step_order import StepId, Untimely, describe
from treetap.process.together import ended
from treetap.wire.v2 import control_pb2

log = logging.getLogger(__name__)
#: Task → the number of callers that wait for it, or have got its result or error.
_heard: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
#: Seconds between two progress events of a running step.
HEARTBEAT_S = 1.0

#: Most steps of an attempt whose results are kept.
MOST_STEPS = 4096


@contextmanager
def disk_faults(party: str, what: str) -> Iterator[None]:
    """Raise `Interrupted` for an error of the disk within the block; it names the party, what it did, and the file."""
    try:
        yield
    except OSError as failure:
        raise _of_disk(what, failure).at(party) from failure


def _of_disk(what: str, failure: OSError) -> Interrupted:
    """The error for a full disk, a missing folder and the like: the operator repairs it and resumes."""
    return Interrupted(f"{what}: {failure.strerror}: {failure.filename or 'state folder'}")


@dataclass
class StepCache:
    """The last steps of one attempt at a job.

    A step that fails ends the attempt: the messages that it has read are gone, and its work is incomplete. Its repeat
    gets the same error, since the first response may have been lost; no other step begins. The next attempt has a new
    cache.

    The cache is bounded, because a served model runs steps for months; a coordinator repeats only the step that it
    waits for.
    """

    #: of each step the digest of its request, and the task that runs or ran it
    _tasks: dict[StepId, tuple[bytes, asyncio.Task[control_pb2.StepResult]]] = field(default_factory=dict)
    _running: StepId | None = None
    _failure: str = ""  # the step that ended the attempt, and its error

    def start(
        self,
        step: StepId,
        request: control_pb2.StepRequest,
        work: Callable[[], Awaitable[control_pb2.StepResult]],
    ) -> asyncio.Task[control_pb2.StepResult]:
        """Begin a step, or return the task that runs or ran it.

        Raises:
            Interrupted: a step has failed, which ended the attempt.
            Conflict: the same step came before, with other content.
            OutOfOrder: another step is under way.
        """
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        known = self._tasks.get(step)
        if known is not None and known[0] == digest:
            return known[1]
        if self._failure:
            raise Interrupted(
                f"the attempt has ended before {describe(step)}: {self._failure}; resume the job for a new one"
            )
        if known is not None:
            raise Conflict(f"{describe(step)} came again with other content")
        if self._running is not None:
            raise OutOfOrder(f"{describe(step)} came while {describe(self._running)} is under way")
        while len(self._tasks) >= MOST_STEPS:
            del self._tasks[next(iter(self._tasks))]
        self._running = step
        task = asyncio.ensure_future(self._run(step, work))
        log_unheard(task, f"job {request.job}, attempt {request.attempt}: {describe(step)}")
        self._tasks[step] = digest, task
        return task

    async def _run(self, step: StepId, work: Callable[[], Awaitable[control_pb2.StepResult]]) -> control_pb2.StepResult:
        try:
            return await work()
        except Untimely as refusal:
            self._tasks.pop(step, None)
            raise OutOfOrder(str(refusal)) from None
        except OSError as failure:
            error = _of_disk(describe(step), failure)
            self._failure = str(error)
            raise error from failure
        except TreetapError as error:
            self._failure = f"{describe(step)} failed: {error}"
            raise
        except BaseException as defect:  # without its text, which may contain data
            self._failure = f"{describe(step)} failed ({type(defect).__name__})"
            raise
        finally:
            self._running = None

    @property
    def busy(self) -> bool:
        """True if a step is under way."""
        return self._running is not None

    async def close(self) -> None:
        """Cancel running steps and wait until they have ended."""
        await ended(task for _, task in self._tasks.values() if not task.done())


async def follow(
    party: str, task: asyncio.Task[Any], progress: Callable[[], control_pb2.Progress] = control_pb2.Progress
) -> AsyncIterator[control_pb2.StepEvent]:
    """Progress events until the task ends; raises its error. Closing this iterator does not cancel the task."""
    _heard[task] = _heard.get(task, 0) + 1
    try:
        while not (await asyncio.wait({task}, timeout=HEARTBEAT_S))[0]:
            yield control_pb2.StepEvent(progress=progress())
    except BaseException:  # the caller has gone
        _heard[task] -= 1
        raise
    if task.cancelled():
        raise Interrupted(f"{party} left the job or was stopped while this step was under way")
    try:
        task.result()
    except (BadInput, Interrupted) as error:  # the operator needs the party's name
        raise error.at(party) from error.__cause__


def log_unheard(task: asyncio.Task[Any], what: str) -> None:
    """Log the error of a task that no caller waits for any more; an unforeseen one with its traceback."""

    def ended(task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or _heard.get(task, 0):
            return
        if isinstance(error, TreetapError):
            log.warning("%s failed after its caller had gone: %s: %s", what, type(error).__name__, error)
        else:
            log.error("%s met a defect after its caller had gone", what, exc_info=error)

    task.add_done_callback(ended)
