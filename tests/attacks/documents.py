"""Audit documents made by code: random columns, labels and trees, and every figure that follows from them consistent.

Trees are grown on the made-up columns by the rule of the real ones for who learns what: a feature party is sent the
nodes that may be split but for children of its own splits, knows those anyway, and works out what is left.
"""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from treetap.attacks.advice.advise import AdvisedJob, advise
from treetap.attacks.advice.names import Guessed
from treetap.attacks.document import (
    AttackName,
    AttackResult,
    BoundRow,
    Document,
    Party,
    ReceivedRow,
    SeenTree,
    SentRow,
    Signature,
    SignatureStep,
    TrafficRow,
    TreeNode,
)
from treetap.attacks.report.page import print_summary
from treetap.attacks.sections import chance_information
from treetap.attacks.verdict import Compared, Verdict, judged
from treetap.terminal import PlainConsole

Ints = npt.NDArray[np.int64]
HOLDER = "clinic"
NAMES = [
    "lab-north",
    "insurer",
    "pharmacy",
    "registry",
    "radiology",
    "dentist",
    "sports-club",
    "grocer",
    "bank",
    "telco",
]
COLUMNS = ["age", "systolic", "hdl", "claims", "income", "steps", "visits", "dose"]
#: V-measure in the end, over CL's: plausible, no more.
GAINS: dict[AttackName, float] = {
    **{"cl": 0.0, "uni": -0.12, "uni+cl": 0.03, "id2graph": 0.38},
    **{"id2graph-chunked": 0.29, "id2graph-quotient": 0.38},
}


def made(
    *,
    parties: list[str] | int = 2,
    trees: int = 5,
    depth: int = 4,
    classes: int | None = 2,
    records: int = 900,
    labelled: bool = True,
    attacks: bool = True,
    columns: list[str] | None = None,
    withheld: float = 0.25,
    seed: int = 1,
) -> Document:
    """A document; `classes` None is a regression; `withheld`: the share of nodes that a defence shows nobody."""
    draw = np.random.default_rng(seed)
    names = NAMES[:parties] if isinstance(parties, int) else parties
    columns = columns or COLUMNS
    weights = 1.0 / np.arange(1, (classes or 2) + 1)
    labels = draw.choice(classes or 2, records, p=cast("npt.NDArray[np.float64]", weights / weights.sum())).astype(
        np.int64
    )
    values = {
        name: labels[:, None] * draw.uniform(0, 1.4, len(columns)) + draw.normal(0, 1, (records, len(columns)))
        for name in [HOLDER, *names]
    }
    grown = [_grow(draw, values, depth) for _ in range(trees)]
    scored = labelled and classes is not None
    found = {
        name: _party(
            draw, name, records, grown, labels if scored else None, classes or 2, depth, columns, attacks, withheld
        )
        for name in names
    }
    rows = []
    for name, party in found.items():
        for got in party.received:
            rows.append(TrafficRow.model_validate({**got.model_dump(by_alias=True), "to": name}))
        for gave in party.sent:
            rows.append(TrafficRow.model_validate({**gave.model_dump(by_alias=True), "from": name}))
    return Document(
        job="example-7f3a",
        protocol="boosting",
        label_holder=HOLDER,
        attempt=1,
        records=records,
        classes=classes if labelled else None,
        class_names=[str(number + 1) for number in range(classes)] if labelled and classes else None,
        labelled=labelled,
        trees=trees,
        max_depth=depth,
        discount=0.6,
        created=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
        treetap="0.1.0",
        verdicts=[verdict_of(name, party, records) for name, party in found.items()],
        parties=found,
        traffic=rows,
        advice=None if classes is None else advise(_job(names, classes, found), None),
    )


def printed(document: Document, width: int) -> list[str]:
    """The lines of the summary in a terminal of this width."""
    out = io.StringIO()
    print_summary(document.plain(), PlainConsole(file=out, width=width))
    return out.getvalue().splitlines()


def in_terminal(document: Document, width: int = 250) -> str:
    """The same without line breaks."""
    return " ".join(" ".join(printed(document, width)).split())


def verdict_of(name: str, party: Party, records: int) -> Verdict:
    """The verdict that an audit would give by the accuracies of the party's attacks, were all errors independent."""
    own = party.attacks.get("cl")
    trained = {attack: it.largest("accuracy") for attack, it in party.attacks.items() if attack != "cl"}
    reached = {attack: largest for attack, largest in trained.items() if largest is not None}
    if not reached or own is None or own.accuracy is None:
        reason = "no labels were given to compare with" if trained else "no attack that uses the training was run"
        return judged(name, "labels", HOLDER, [], reason=reason, details="attacks")
    best = max(reached, key=lambda attack: reached[attack][1])
    compared = Compared(
        measure="accuracy",
        before=own.accuracy,
        before_how="groups of its own columns",
        reached=reached[best][1],
        reached_how=f"{best} after {reached[best][0]} trees",
        error=math.sqrt(0.5 / records),
        tries=len(reached) * max(1, len(party.trees)),
        details="attacks",
    )
    return judged(name, "labels", HOLDER, [compared], reason="", details="attacks")


def _job(names: list[str], classes: int, parties: dict[str, Party]) -> AdvisedJob:
    """The job as advice sees it, with the scores of its first party."""
    attacks = next(iter(parties.values())).attacks if parties else {}
    scores = {name: it.accuracy for name, it in attacks.items() if it.accuracy is not None}
    if not scores.keys() - {"cl"}:
        return AdvisedJob("boosting", HOLDER, names, classes, {}, None)
    guessed = Guessed(before=scores["cl"], after=max(scores.values()))
    return AdvisedJob("boosting", HOLDER, names, classes, {"accuracy": guessed}, "severe")


Grown = tuple[dict[int, Ints], dict[int, tuple[str, int, float]]]


def _grow(draw: np.random.Generator, values: dict[str, npt.NDArray[np.float64]], depth: int) -> Grown:
    """Records of every node, and owner, column, threshold of every split."""
    owners = list(values)
    nodes: dict[int, Ints] = {1: np.arange(len(values[owners[0]]), dtype=np.int64)}
    splits: dict[int, tuple[str, int, float]] = {}
    for node in range(1, 2**depth):
        if node not in nodes or len(nodes[node]) < 30 or (node > 3 and draw.random() < 0.06):
            continue
        owner = owners[int(draw.integers(len(owners)))]
        column = int(draw.integers(values[owner].shape[1]))
        cells = values[owner][nodes[node], column]
        threshold = float(np.quantile(cells, draw.uniform(0.25, 0.75)))
        left = cells < threshold
        splits[node] = (owner, column, threshold)
        nodes[2 * node], nodes[2 * node + 1] = nodes[node][left], nodes[node][~left]
    return nodes, splits


def _known(draw: np.random.Generator, grown: Grown, party: str, depth: int, withheld: float) -> dict[int, str]:
    """Node → source. A node that the party splits is always shown to it, be it withheld from others."""
    nodes, splits = grown
    known = {1: "root"}
    for node in sorted(nodes)[1:]:
        if splits[node >> 1][0] == party:
            known[node] = "own"
        elif (
            node.bit_length() - 1 < depth
            and len(nodes[node]) >= 30
            and (splits.get(node, ("",))[0] == party or draw.random() >= withheld)
        ):
            known[node] = "received"
    for node in sorted(nodes)[1:]:
        if node not in known and node >> 1 in known and node ^ 1 in known:
            known[node] = "difference"
    return known


def _party(
    draw: np.random.Generator,
    name: str,
    rows: int,
    grown: list[Grown],
    labels: Ints | None,
    classes: int,
    depth: int,
    columns: list[str],
    attacks: bool,
    withheld: float,
) -> Party:
    sources = [_known(draw, each, name, depth, withheld) for each in grown]
    spaces = sum(source == "received" for each in sources for source in each.values())
    own = sum(split[0] == name for _, splits in grown for split in splits.values())
    received = [
        ReceivedRow.model_validate({"class": kind, "from": peer, "step": step, "messages": messages, "bytes": size})
        for kind, peer, step, messages, size in [
            ("CONTROL", "coordinator", "build_histograms", 6 * len(grown), 940 * len(grown)),
            ("TOPOLOGY", "coordinator", "apply_splits", own, 24 * own),
            ("PUBLIC_KEY", HOLDER, "public_key", 1, 312),
            ("CIPHERTEXT", HOLDER, "gradients", 2 * len(grown), rows * len(grown) * 512),
            ("INSTANCE_SPACE", HOLDER, "instance_spaces", spaces, spaces * (rows // 8)),
        ]
        if messages
    ]
    sent = [
        SentRow.model_validate({"class": kind, "to": HOLDER, "step": step, "messages": messages, "bytes": size})
        for kind, step, messages, size in [
            ("CANDIDATE_SUM", "candidate_sums", 3 * len(grown), 40_000 * len(grown) + 17),
            ("INSTANCE_SPACE", "children", own, own * (rows // 8)),
        ]
        if messages
    ]
    return Party(
        transcript=f"{name}-state/transcripts/example-7f3a",
        columns=columns,
        received=received,
        sent=sent,
        attacks=_attacks(draw, len(grown), classes, labels is not None) if attacks else {},
        bounds=[] if labels is None else _bounds(grown, sources, labels, classes),
        signature=_signature(grown, sources, labels, classes),
        trees=[_seen(k, each, sources[k], name, labels, classes, columns) for k, each in enumerate(grown)],
        faults=[],
        signed="",
    )


def _seen(
    number: int, grown: Grown, known: dict[int, str], party: str, labels: Ints | None, classes: int, columns: list[str]
) -> SeenTree:
    nodes, splits = grown
    above = {node >> up for node in known for up in range(node.bit_length())}
    shown = sorted(above | {node ^ 1 for node in above if node > 1})
    rows: list[dict[str, Any]] = []
    for node in shown:
        own = splits.get(node, ("", 0, 0.0))
        mine = node in known and own[0] == party
        by_class = node in known and labels is not None
        rows.append(
            {
                "node": node,
                "depth": node.bit_length() - 1,
                "known": node in known,
                "source": known.get(node),
                "records": len(nodes[node]) if node in known else None,
                "leaf": node in known and not {2 * node, 2 * node + 1} & known.keys(),
                "feature": columns[own[1]] if mine else None,
                "threshold": own[2] if mine else None,
                "classes": np.bincount(labels[nodes[node]], minlength=classes).tolist()
                if by_class and labels is not None
                else None,
            }
        )
    return SeenTree(tree=number, nodes=[TreeNode(**row) for row in rows])


def _divergence(counts: Ints, prior: npt.NDArray[np.float64]) -> float:
    if not counts.sum():
        return 0.0
    share = counts / counts.sum()
    seen = share > 0
    return float((share[seen] * np.log(share[seen] / prior[seen])).sum())


def _bounds(grown: list[Grown], sources: list[dict[int, str]], labels: Ints, classes: int) -> list[BoundRow]:
    total = np.bincount(labels, minlength=classes)
    rows = []
    for k, (nodes, _) in enumerate(grown):
        for node, source in sources[k].items():
            if source == "root":
                continue
            counts = np.bincount(labels[nodes[node]], minlength=classes)
            inside, outside = (_divergence(it, total / len(labels)) for it in (counts, total - counts))
            size = {"tree": k, "node": node, "depth": node.bit_length() - 1, "records": len(nodes[node])}
            figures = {"nats": max(inside, outside), "node_nats": inside, "complement_nats": outside}
            rows.append(BoundRow.model_validate({**size, **figures, "source": source}))
    return rows


def _signature(grown: list[Grown], sources: list[dict[int, str]], labels: Ints | None, classes: int) -> Signature:
    total = len(grown[0][0][1]) if grown else 0
    groups = np.zeros(total, dtype=np.int64)
    steps = []
    entropy = None if labels is None else _entropy(np.bincount(labels, minlength=classes))
    for k, (nodes, _) in enumerate(grown):
        cells = np.zeros(total, dtype=np.int64)
        for node in sorted(sources[k]):
            cells[nodes[node]] = node
        groups = np.unique(groups * 2**20 + cells, return_inverse=True)[1].reshape(-1)
        information = chance = None
        if labels is not None and entropy is not None:
            joint = np.unique(groups * classes + labels, return_counts=True)[1]
            information = max(0.0, entropy + _entropy(np.bincount(groups)) - _entropy(joint))
            chance = chance_information(labels, groups)
        found = {"mutual_information": information, "by_chance": chance}
        steps.append(SignatureStep(tree=k, signatures=int(groups.max()) + 1, **found))
    last = steps[-1] if steps else SignatureStep(tree=0, signatures=0, mutual_information=None, by_chance=None)
    return Signature(
        signatures=last.signatures,
        label_entropy=entropy,
        mutual_information=last.mutual_information,
        by_chance=last.by_chance,
        by_tree=steps,
    )


def _entropy(counts: Ints) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _attacks(draw: np.random.Generator, trees: int, classes: int, scored: bool) -> dict[AttackName, AttackResult]:
    base = float(draw.uniform(0.12, 0.3))
    found: dict[AttackName, AttackResult] = {}
    for name, gain in GAINS.items():
        end = max(0.004, base + gain * float(draw.uniform(0.6, 1.0)))
        course = [base + (end - base) * (1 - math.exp(-3 * (k + 1) / max(trees, 2))) for k in range(trees)]
        course = [min(0.98, max(0.0, value + (name != "cl") * float(draw.normal(0, 0.015)))) for value in course]
        last = max(course, default=end)
        apart = min(0.9, float(draw.uniform(0.9, 1.0)))
        homogeneity = last * apart
        scores = {
            "v_measure": last,
            "homogeneity": homogeneity,
            "completeness": last * homogeneity / (2 * homogeneity - last) if last else 0.0,
            "ari": last * 0.9,
            "nmi": last,
            "accuracy": 0.5 + last / 2,
            "named_accuracy": 0.45 + last / 2,
        }
        found[name] = AttackResult.model_validate(
            {
                **{key: value if scored else None for key, value in scores.items()},
                "after_trees": None if name == "cl" else course.index(last) + 1 if scored and course else trees,
                "by_tree": course if scored else None,
                "accuracy_by_tree": [0.5 + value / 2 for value in course] if scored else None,
                "seconds": float(draw.uniform(0.05, 9)),
                "groups": None if name == "cl" else int(draw.integers(classes, 40)),
                "clusters": classes,
                "parameters": {} if name == "cl" else {"alpha": 3.0, "discount": 0.6, "seed": 0},
            }
        )
    return found
