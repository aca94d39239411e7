"""Noised sums that leave a party, watched: none without a charge on disk, none twice with other bytes or old noise."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.boosting.drawn_noise import DrawnNoise, assert_drawn_model
from tests.campaign.disk import SYSTEM
from tests.campaign.stages import Stage
from tests.simulator import Federation, SimDialer
from tests.worlds import PARTIES
from treetap.models.durable import KEY
from treetap.party.growth import column_noise
from treetap.party.runtime.ledger import LEDGER, Charge, Kind, ledger_of
from treetap.privacy.column_privacy import drawn_sums
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.ports import Address
from treetap.wire.v2 import exchange_pb2


def charges_on_disk(state: Path) -> list[Charge]:
    """The ledger as the disk has it: read past the disks of the campaign, which count what a party does."""
    path = state / LEDGER
    if not path.is_file():
        return []
    raw = SYSTEM.read(path)
    lines = map(json.loads, raw[: raw.rfind(b"\n") + 1].splitlines())
    charges = [Charge.of({key: value for key, value in line.items() if key != KEY}) for line in lines]
    return [charge for charge in charges if charge.kind is Kind.NOISED_SUMS]


class NoisedSums(DrawnNoise):
    """What parties with noise have drawn and sent; their draws follow from a seed, each from where the last one ended.

    Attributes:
        sent: party → its attempts, by job and number, of which sums left.
        times: (party, job, attempt, tree, stage, part) → how often it left.
        faults: what did not hold as sums left.
    """

    def __init__(self, patched: pytest.MonkeyPatch, seed: int) -> None:
        super().__init__(patched)
        draws = partial(discrete_gaussians, source=random.Random(f"noised sums {seed}").randbytes)
        patched.setattr(column_noise, "drawn_sums", lambda *about: drawn_sums(*about[:3], draws))
        self.sent: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self.times = Counter[tuple[str, str, int, int, int, int]]()
        self.faults: list[str] = []
        self._contents: dict[tuple[str, str, int, int, int, int], bytes] = {}
        deliver = SimDialer.deliver

        async def watched(dialer: SimDialer, to: Address, wire: bytes) -> exchange_pb2.Receipt:
            config = dialer._federation.configs.get(dialer._me.name)
            if config is not None and config.defences.column_privacy is not None:
                message = exchange_pb2.PeerMessage.FromString(wire)
                if name_of(message) == "candidate_sums":
                    self._leave(dialer._federation, dialer._me.name, message, wire)
            return await deliver(dialer, to, wire)

        patched.setattr(SimDialer, "deliver", watched)

    def _leave(self, federation: Federation, party: str, message: exchange_pb2.PeerMessage, wire: bytes) -> None:
        attempt = message.job, message.attempt
        charged = [
            (charge.occasion.job, charge.occasion.attempt) for charge in charges_on_disk(federation.state(party))
        ]
        if (times := charged.count(attempt)) != 1:
            self.faults.append(f"sums of {attempt} left {party}, which has charged it {times} times")
        self.sent[party].add(attempt)
        place = party, *attempt, message.round, message.stage, message.part
        self.times[place] += 1
        if self._contents.setdefault(place, wire) != wire:
            self.faults.append(f"{party} has sent other bytes in the place of {place[1:]}")

    def found(self, here: Stage, states: dict[str, Path], hits: int) -> list[str]:
        """All faults after everything, those of the published models too; `hits`: faults that happened meanwhile."""
        own = here.of_columns.column_privacy
        if own is None:
            return []
        faults, party = list(self.faults), PARTIES[1]
        charges = ledger_of(states[party]).charges(Kind.NOISED_SUMS)
        charged = Counter((charge.occasion.job, charge.occasion.attempt) for charge in charges)
        faults += [f"{attempt} was charged {times} times" for attempt, times in charged.items() if times > 1]
        faults += [f"sums of {attempt} left, and it is not charged" for attempt in self.sent[party] - charged.keys()]
        if len(charged.keys() - self.sent[party]) > hits:
            faults.append(f"{charged.keys() - self.sent[party]} were charged and sent nothing, after {hits} faults")
        faults += [f"noise of {draw} was drawn {times} times" for draw, times in self.draws.items() if times > 1]
        if max(self.values.values(), default=1) > 1:
            faults.append("the same noise was drawn twice")
        assert isinstance(here.params, BoostingParams)
        for model in sorted((states[PARTIES[0]] / "models").iterdir()):
            try:
                assert_drawn_model(states, here.here, here.params, {party: here.of_columns}, self, model.name)
            except (AssertionError, OSError, KeyError, ValueError) as failure:
                faults.append(f"the model of {model.name} is not that of the noise: {failure!r}"[:400])
        return faults


@contextmanager
def noised_sums(seed: int = 0) -> Iterator[NoisedSums]:
    """Within the block noised sums are watched, and their noise follows from a seed."""
    with pytest.MonkeyPatch.context() as patched:
        yield NoisedSums(patched, seed)
