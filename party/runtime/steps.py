"""Steps done once: a repeat is answered as before, a wrong order is refused, a failure ends the attempt.

The order itself is `party.runtime.step_order`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from treetap.errors import Conflict, Interrupted, OutOfOrder, TreetapError
from treetap.wire.v2 import control_pb2

#: Seconds between two signs of life of a running step.
HEARTBEAT_S = 1.0

#: Steps of an attempt that are remembered.
MOST_STEPS = 4096

StepId = tuple[str, int, int]


def describe(step: StepId) -> str:
    """`choose_splits of round 2, stage 1`."""
    kind, round, stage = step
    return f"{kind} of round {round}, stage {stage}"


class Untimely(OutOfOrder):
    """A step that is refused before any of it was done: the attempt goes on as if it had not come.

    Callers get `OutOfOrder`, whose name peers know.
    """


@dataclass
class ProgressCounter:
    """How far the running step is."""

    done: int = 0
    total: int = 0


@dataclass
class StepCache:
    """The last steps of one attempt at a job.

    A step that fails ends the attempt: parcels that it has read are gone, and what it began is half done. Its repeat
    gets the same error, since the answer may have been lost; no other step begins. The next attempt has a new book.

    A coordinator repeats the step that it waits for and none before it; what serves for months has steps without end.
    """

    _tasks: dict[StepId, asyncio.Task[control_pb2.StepResult]] = field(default_factory=dict)
    _digests: dict[StepId, bytes] = field(default_factory=dict)
    _running: StepId | None = None
    _failure: str = ""  # which step ended the attempt, and why

    def start(
        self,
        step: StepId,
        request: control_pb2.StepRequest,
        work: Callable[[], Awaitable[control_pb2.StepResult]],
    ) -> asyncio.Task[control_pb2.StepResult]:
        """Begin a step, or find the task that does or did it.

        Raises:
            Interrupted: a step has failed, which ended the attempt.
            Conflict: the same step came before, with other content.
            OutOfOrder: another step is under way.
        """
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        known = step in self._tasks
        if known and self._digests[step] == digest:
            return self._tasks[step]
        if self._failure:
            raise Interrupted(
                f"the attempt has ended before {describe(step)}: {self._failure}; resume the job for a new one"
            )
        if known:
            raise Conflict(f"{describe(step)} came again with other content")
        if self._running is not None:
            raise OutOfOrder(f"{describe(step)} came while {describe(self._running)} is under way")
        while len(self._tasks) >= MOST_STEPS:
            self._forget(next(iter(self._tasks)))
        self._running = step
        self._digests[step] = digest
        task = asyncio.ensure_future(self._run(step, work))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # a caller may have gone away
        self._tasks[step] = task
        return task

    async def _run(self, step: StepId, work: Callable[[], Awaitable[control_pb2.StepResult]]) -> control_pb2.StepResult:
        try:
            return await work()
        except Untimely as refusal:
            self._forget(step)
            raise OutOfOrder(str(refusal)) from None
        except OSError as failure:  # a full disk, a folder gone: mend it and resume
            error = Interrupted(f"{describe(step)}: {failure.strerror}: {failure.filename or 'state folder'}")
            self._failure = str(error)
            raise error from failure
        except TreetapError as error:
            self._failure = f"{describe(step)} failed: {error}"
            raise
        except BaseException as defect:  # without its text, which might hold data
            self._failure = f"{describe(step)} failed ({type(defect).__name__})"
            raise
        finally:
            self._running = None

    def _forget(self, step: StepId) -> None:
        self._tasks.pop(step, None)
        self._digests.pop(step, None)

    @property
    def busy(self) -> bool:
        """Whether a step is under way."""
        return self._running is not None

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended."""
        running = [task for task in self._tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def follow(
    party: str, task: asyncio.Task[Any], progress: Callable[[], control_pb2.Progress] = control_pb2.Progress
) -> AsyncIterator[control_pb2.StepEvent]:
    """Signs of life until the task ends, its error if it has one. Ending this iterator does not end the task."""
    while not (await asyncio.wait({task}, timeout=HEARTBEAT_S))[0]:
        yield control_pb2.StepEvent(progress=progress())
    if task.cancelled():
        raise Interrupted(f"{party} was left or told to stop while this step was under way")
    try:
        task.result()
    except Interrupted as error:  # the operator must know where
        raise error.at(party) from error.__cause__
