"""A fault schedule as data, from a seed or a file: what is asked of a federation, and what breaks meanwhile."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.campaign.disk import CRASHES, REFUSALS
from tests.simulator import COORDINATOR
from tests.worlds import PARTIES

#: A second coordinator whom all parties obey.
SECOND = "second"
#: Stage → how often it is drawn. On two the label holder has defences of its labels; the last one trains a network.
STAGES = {
    "boosting": 38,
    "boosting-psi": 6,
    "boosting-proven": 6,
    "boosting-noised": 6,
    "stopping": 10,
    "forest": 12,
    "pivodl": 10,
    "pivodl-published": 6,
    "pivodl-secure": 2,
    "pivodl-noise": 4,
    "boosting-withheld": 10,
    "forest-noisy": 14,
    "splitnn": 12,
}
#: Stages whose models predict.
TRAINED = {"boosting": 80, "boosting-withheld": 8, "forest-noisy": 12}
STORIES = {"train": 40, "predict": 26, "cancel": 10, "two-jobs": 9, "two-coordinators": 7, "serve": 8}
PREDICTIONS: tuple[dict[str, Any], ...] = (
    {"protocol": "interactive"},
    {"protocol": "interactive", "form": "per-tree"},
    {"protocol": "eini", "key_bits": 1024},
    {"protocol": "eini", "key_bits": 1024, "attributions": True},
    {"protocol": "eini-lattice"},
)
AWAY = ({}, {"away_policy": "retry", "away_deadline_s": 12}, {"away_policy": "degrade", "away_deadline_s": 12})
#: Of each kind of fault, how often it is drawn.
KINDS = {"kill": 30, "disk": 34, "cut": 14, "network": 12, "worker": 10}
#: What a bad network does, see `tests.simulator.Faults`.
NETWORKS: tuple[dict[str, float], ...] = (
    {"drop": 0.1, "lose_reply": 0.1},
    {"delay_s": 3.0},
    {"double": 0.4, "late_s": 2.0},
    {"double": 0.3, "late_s": 40.0},
    {"drop": 0.1, "lose_reply": 0.05, "double": 0.2, "delay_s": 1.0, "late_s": 200.0},
    {"drop": 0.4, "lose_reply": 0.2, "delay_s": 2.0},
)
#: About how many messages a training has, and how many file operations and calls of its worker one process.
_IN_A_TRAINING = (100, 80, 25)
#: How many times as many a training on another stage has.
_LONGER = {"pivodl": (2.8, 1.6, 1.2), "pivodl-published": (3.6, 1.6, 1.5), "pivodl-secure": (3.2, 1.6, 1.5)}
_LONGER |= {"pivodl-noise": _LONGER["pivodl"], "boosting-withheld": (1.2, 1.6, 1.2), "forest-noisy": (1.0, 2.2, 1.1)}
_LONGER["splitnn"] = (0.45, 1.4, 0.04)  # it has no workers
_EVERYBODY = (*PARTIES, COORDINATOR)
#: One plan of so many uses the real ciphers.
REAL_EVERY = 10
Fault = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """One schedule.

    Attributes:
        seed: what chance draws from while the plan is carried out; also its name.
        stage: the federation, see `tests.campaign.stages`.
        story: what is asked of it, see `tests.campaign.stories`.
        asked: the story's options.
        real: the real ciphers, not transparent ones.
        record: whether parties keep transcripts.
        faults: what breaks, each a dictionary with its `kind`, in any order.
    """

    seed: int
    stage: str
    story: str
    asked: dict[str, Any] = field(default_factory=dict)
    real: bool = False
    record: bool = False
    faults: tuple[Fault, ...] = ()

    def to_json(self) -> str:
        """The plan as a file holds it."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """A plan from a file."""
        content = json.loads(path.read_text())
        return cls(**content | {"faults": tuple(content["faults"])})

    def without(self, index: int) -> Plan:
        """The plan without one of its faults."""
        return replace(self, faults=self.faults[:index] + self.faults[index + 1 :])


def drawn(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan {seed}")
    story = rng.choices(list(STORIES), list(STORIES.values()))[0]
    real = seed % REAL_EVERY == 0
    asked: dict[str, Any] = {}
    stage = rng.choices(list(STAGES), list(STAGES.values()))[0]
    if story in ("predict", "serve"):
        stage = rng.choices(list(TRAINED), list(TRAINED.values()))[0] if story == "predict" else "boosting"
        weights = (34, 16, 30, 12, 8) if story == "predict" else (34, 26, 36, 0, 4)
        asked["prediction"] = dict(rng.choices(PREDICTIONS, weights)[0])
        if story == "predict":
            away = rng.choices(AWAY, (50, 25, 25))[0]
            exact = asked["prediction"].get("attributions") or asked["prediction"]["protocol"] == "eini-lattice"
            asked["prediction"] |= {} if exact and away.get("away_policy") == "degrade" else away
            if stage != "boosting":  # of its model neither is to be had
                asked["prediction"] = _permitted(asked["prediction"])
    elif story == "cancel":
        asked["at"] = rng.randrange(100)
    elif story == "two-coordinators":
        asked["at"] = rng.randrange(100)
        asked["cancels"] = rng.random() < 0.5
    length = (0.4,) * 3 if story in ("predict", "serve") else _LONGER.get(stage, (1.0,) * 3)
    faults = tuple(_fault(rng, length) for _ in range(rng.choices((1, 2, 3, 5), (45, 30, 17, 8))[0]))
    return Plan(seed, stage, story, asked, real, rng.random() < 0.2, faults)


def _permitted(prediction: dict[str, Any]) -> dict[str, Any]:
    """A prediction with a model whose leaves have values that the label holder alone knows."""
    degrades = {key: value for key, value in prediction.items() if key.startswith("away")}
    refused = {"attributions", *(degrades if prediction.get("away_policy") == "degrade" else ())}
    return {key: value for key, value in prediction.items() if key not in refused}


def _fault(rng: random.Random, length: tuple[float, ...]) -> Fault:
    """One fault of a story whose messages and file operations are so many times those of a training."""
    most = zip(_IN_A_TRAINING, length, strict=True)
    messages, operations, calls = (int(each * times) for each, times in most)
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    back = rng.choice([0.0, 0.0, 3.0, 30.0, 200.0])
    made: Fault = {"kind": kind}
    if kind == "kill":
        made |= {"who": rng.choice(_EVERYBODY), "at": rng.randrange(messages), "served": rng.random() < 0.5}
        return made | {"back_s": back}
    if kind == "disk":
        how = rng.choice([*CRASHES, *CRASHES, *REFUSALS])
        for_s = rng.choice([0.0, 5.0, 60.0]) if how in REFUSALS else 0.0
        made |= {"who": rng.choice(_EVERYBODY), "at": rng.randrange(operations), "how": how, "for_s": for_s}
        return made | {"back_s": back}
    if kind == "worker":
        how = rng.choice(["slow", "hang", "die"])
        made |= {"who": rng.choice(PARTIES), "at": rng.randrange(calls), "how": how}
        return made | {"for_s": rng.choice([1.0, 10.0, 60.0])}
    if kind == "cut":  # `half`: requests arrive, answers do not
        sender, to = rng.sample(_EVERYBODY, 2)
        made |= {"from": sender, "to": to, "at": rng.randrange(messages), "for_s": rng.choice([2.0, 8.0, 15.0, 60.0])}
        return made | {"half": rng.random() < 0.5}
    return made | rng.choice(NETWORKS)
