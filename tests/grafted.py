"""Published models with subtrees that the label holder alone knows, made by hand, and the naive scores of these."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.published import write_files, write_trees
from treetap.models.store import HIDES_CONSTANTS, REPAIRED, TREES, VALUES, read_model

Json = dict[str, Any]
Floats = npt.NDArray[np.float64]


def add_grafts(folder: Path, seed: int = 0) -> None:
    """Give a label holder's model repaired trees, grafts of which cover inner nodes, leaves and a root."""
    manifest, lines = read_model(folder)
    rng = np.random.default_rng(seed)
    first = 1 + max((split["handle"] for line in lines for split in line["own"]), default=-1)
    repaired = []
    for number, line in enumerate(lines):
        tree, own = line["tree"], []
        inner = sorted(split["node"] for split in tree["splits"])
        outer = sorted(leaf["node"] for leaf in tree["leaves"])
        roots = [inner[-1], next(node for node in outer if node >> 1 != inner[-1])] if number else [1]
        local = []
        for root in roots:
            subtree = _subtree(root, manifest, len(tree["outputs"]), first + len(own), rng)
            own += subtree.pop("own")
            local.append(subtree)
        first += len(own)
        moved = [{**leaf, "weights": [weight + 0.25 for weight in leaf["weights"]]} for leaf in tree["leaves"]]
        refit = {**tree, "leaves": moved}
        more = {"refit": refit, "grafting": {**tree, "local": local}, "grafting_refit": {**refit, "local": local}}
        repaired.append({**more, "own": own})
    changed = {**manifest, HIDES_CONSTANTS: True, VALUES: "grafting_refit"}
    write_files(folder, changed, {TREES: lines, REPAIRED: repaired})


def withdraw_leaves(folder: Path, seed: int = 0) -> None:
    """Make the last leaf of each tree of a label holder's model the root of a subtree that no other party knows."""
    manifest, lines = read_model(folder)
    rng = np.random.default_rng(seed)
    first = 1 + max((split["handle"] for line in lines for split in line["own"]), default=-1)
    for line in lines:
        tree = line["tree"]
        subtree = _subtree(max(leaf["node"] for leaf in tree["leaves"]), manifest, len(tree["outputs"]), first, rng)
        own = subtree.pop("own")
        first += len(own)
        line["own"] += own
        tree["local"] = [subtree]
    write_trees(folder, {**manifest, HIDES_CONSTANTS: True}, lines)


def hide_constants(folder: Path) -> None:
    """Say of a label holder's model that its entries may not count as constant."""
    manifest, lines = read_model(folder)
    write_trees(folder, {**manifest, HIDES_CONSTANTS: True}, lines)


def _subtree(root: int, manifest: Json, outputs: int, first: int, rng: np.random.Generator) -> Json:
    """A random subtree of up to two levels of own splits, with these under `own`."""
    splits, leaves, own, waiting = [], [], [], [root]
    while waiting:
        node = waiting.pop()
        depth = node.bit_length() - root.bit_length()
        if depth == 0 or (depth == 1 and rng.random() < 0.5):
            handle = first + len(own)
            cut, feature = float(rng.normal()), int(rng.integers(len(manifest["columns"])))
            meaning = {"bin": 0, "threshold": cut, "missing_left": bool(rng.random() < 0.5)}
            own.append({"handle": handle, "node": node, "feature": feature, **meaning})
            splits.append({"node": node, "owner": manifest["party"], "handle": handle, "gain": 0.0, "cover": 1.0})
            waiting += [2 * node, 2 * node + 1]
        else:
            leaves.append({"node": node, "weights": rng.normal(size=outputs).tolist(), "cover": 1.0})
    return {"root": root, "splits": splits, "leaves": leaves, "own": own}


def naive_scores(states: dict[str, Path], blocks: Sequence[tuple[str, Floats]], model: str = "job") -> Floats:
    """Scores (N, outputs) by the shards of all parties, record by record: first the public shape, then a subtree."""
    shards = {party: read_model(state / "models" / model) for party, state in states.items()}
    holder = next(party for party, (manifest, _) in shards.items() if manifest["role"] == "label_holder")
    manifest, lines = shards[holder]
    folder = states[holder] / "models" / model
    repaired = [] if VALUES not in manifest else _lines(folder / REPAIRED)
    trees = [line[manifest[VALUES]] for line in repaired] or [line["tree"] for line in lines]
    owned: list[tuple[str, Json]] = [(holder, own) for line in repaired for own in line["own"]]
    owned += [(party, own) for party, (_, each) in shards.items() for line in each for own in _own(line)]
    splits = {(party, own["handle"]): own for party, own in owned}
    columns = dict(blocks)

    def walk(shape: Json, node: int, record: int) -> int:
        at = {split["node"]: split for split in shape["splits"]}
        while node in at:
            owner = at[node]["owner"]
            own = splits[owner, at[node]["handle"]]
            value = columns[owner][record, own["feature"]]
            cut = math.inf if own["threshold"] is None else own["threshold"]
            left = own["missing_left"] if math.isnan(value) else value < cut
            node = 2 * node + (not left)
        return node

    scores = np.tile(np.array(manifest["base_margin"]), (len(blocks[0][1]), 1))
    for tree in trees:
        for record in range(len(scores)):
            leaf = walk(tree, 1, record)
            above = [leaf >> up for up in range(leaf.bit_length())]
            found = next((each for each in tree.get("local", ()) if each["root"] in above), tree)
            reached = leaf if found is tree else walk(found, found["root"], record)
            weights = {each["node"]: each["weights"] for each in found["leaves"]}
            scores[record, tree["outputs"]] += weights[reached]
    return scores / len(trees) if manifest.get("averaged") else scores


def _own(line: Json) -> list[Json]:
    found: list[Json] = line["own"] if "own" in line else line["splits"]
    return found


def _lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]
