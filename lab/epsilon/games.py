"""What every mechanism of `treetap measure-epsilon` has: settings, a claim, and pairs of neighbours to play on.

A play carries out the code that parties carry out, up to the numbers that an attacker sees; chance comes from a given
generator, so that a seed repeats it. The neighbours are the worst that the claim covers: all but the canary is held
fixed, trees included. Signs and places of a canary are drawn, and the attacker knows them: a combination of numbers in
which the noise cancels is not one in which all canaries do.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field, model_validator

from treetap.arrays import Floats
from treetap.attacks.epsilon import gaussian_epsilon
from treetap.privacy.zcdp import rho_of
from treetap.strict import Strict

T = TypeVar("T")
#: Most plays on a neighbour between two looks at the clock.
MOST_PLAYS = 20
#: Most numbers of a play: their covariance is measured on `LEARNING` plays for each, or `FEWEST`.
MOST_NUMBERS, LEARNING, FEWEST = 256, 10, 100


#: Given whether it is of the neighbour with the canary, how many plays and their chance: the numbers (plays, d) that an
#: attacker sees, less those that are expected without the canary, where these depend on what is drawn.
Play = Callable[[bool, int, random.Random], Floats]
#: Two neighbours, one with a canary: (d,) what it adds to these numbers, or None: it is measured; and their plays.
Neighbours = tuple[Floats | None, Play]


class Measured(Strict):
    """A table [[measure]].

    `runs`: of the game, half of them on each neighbour; 0: it is not played. `canaries`: of the one run; 0: none.
    `gaussian`: the noise is Gaussian but for its scale. `no_one_run`: the reason why there is no such run, or nothing.
    `carried_out`: the modules that are measured, with other settings some of them: runs of other code do not count.
    `batch`: plays on a neighbour at once, which take less than a minute.
    """

    gaussian: ClassVar[bool] = False
    no_one_run: ClassVar[str] = ""
    carried_out: ClassVar[tuple[str, ...]] = ()
    runs: Annotated[int, Field(ge=0, le=10_000_000)] = 2000
    canaries: Annotated[int, Field(ge=0, le=100_000)] = 2000

    @model_validator(mode="after")
    def _measures_something(self) -> Measured:
        if self.no_one_run and "canaries" in self.model_fields_set:
            raise ValueError(f"canaries: leave it out: {self.no_one_run}")
        if not self.runs and (self.no_one_run or not self.canaries):
            raise ValueError("nothing is measured: give runs = 2000")
        return self

    @property
    @abstractmethod
    def claimed(self) -> float:
        """ε that users are told."""

    @property
    def claimed_delta(self) -> float:
        """δ of that ε."""
        return 0.0

    @property
    def by_noise(self) -> float:
        """ε at that δ by the noise that the claim asks for, without the slack of its accounting."""
        return self.claimed

    @property
    def batch(self) -> int:
        """At most 20, and fewer where a play takes long."""
        return MOST_PLAYS

    @property
    @abstractmethod
    def numbers(self) -> int:
        """d: the numbers that an attacker sees of a play."""

    @classmethod
    def code(cls) -> str:
        """A digest of the code that is measured, and of the file of the class."""
        specs = [importlib.util.find_spec(name) for name in (__name__, cls.__module__, *cls.carried_out)]
        sources = [Path(it.origin).read_bytes() for it in specs if it and it.origin]
        return hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]

    @abstractmethod
    def neighbours(self, chance: random.Random) -> Neighbours:
        """Two neighbours with a canary that is drawn."""

    def play_once(self, coins: Sequence[bool], chance: random.Random) -> list[float]:
        """A score for each canary of one run, greater where its coin is true; 0: no guess."""
        raise NotImplementedError

    def guesses(self, scores: Sequence[float]) -> dict[int, bool]:
        """Canary → the guess of its coin: by the sign of its score."""
        return {place: score > 0 for place, score in enumerate(scores) if score}


class OfBudget(Measured):
    """A mechanism whose ε and δ are settings, by Gaussian noise that zero-concentrated privacy accounts for."""

    gaussian: ClassVar[bool] = True
    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: float

    @model_validator(mode="after")
    def _is_small(self) -> OfBudget:
        if self.numbers > MOST_NUMBERS:
            raise ValueError(
                f"a play of this job has {self.numbers} numbers, and {MOST_NUMBERS} are the most: measure a smaller job"
            )
        return self

    @property
    def claimed(self) -> float:
        return self.epsilon

    @property
    def claimed_delta(self) -> float:
        return self.delta

    @cached_property
    def by_noise(self) -> float:
        return min(self.epsilon, gaussian_epsilon(math.sqrt(2 * rho_of(self.epsilon, self.delta)), self.delta))


def signs(count: int, chance: random.Random) -> Floats:
    """Numbers (count,), each 1 or −1."""
    return np.array([chance.choice((-1.0, 1.0)) for _ in range(count)])


def in_memory(**more: Any) -> Any:
    """The tools of an attempt at a job (`StepContext`), without sockets; work that writes files is left out."""

    async def offload(work: Callable[[], T], *, whole: bool = False) -> T | None:
        return None if whole else work()

    return SimpleNamespace(job="measured", attempt=1, offload=offload, held=AsyncExitStack(), **more)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that waits for nothing."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
