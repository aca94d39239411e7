"""Metrics of the training: sums over the parties with labels, under pairwise masks, for the tree's aggregation party.

A party with fewer than `LEAST_MEASURED` labels adds no share, so that its own loss does not follow from two sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from party.pivodl.own_labels import OwnLabels
from party.pivodl.party_keys import PartyKeys
from party.pivodl.setting import Setting
from treetap.errors import Malformed
from treetap.privacy.ring import decode, encode
from treetap.wire.v2 import pivodl_pb2, types_pb2

#: Loss and correct classes.
FIGURES = 2
#: Fractional bits of a share: few, since squared errors of scaled labels reach 2^24 for each record.
FRACTION = 16


async def add_up_metrics(setting: Setting, own: OwnLabels, keys: PartyKeys) -> dict[str, float]:
    """Send this party's share; at the aggregation party, the metrics of all shares, by name."""
    t, aggregator = setting.tree.index, setting.draws.aggregation_party(setting.tree.index)
    present = setting.measured
    if not present:
        return {}
    share = np.zeros(FIGURES, dtype=np.uint64)
    if setting.me in present:
        share = keys.masks.masked(encode(np.array(own.figures()), len(present), FRACTION), "metrics", t, present)
        if setting.me != aggregator:
            body = pivodl_pb2.MetricShare(values=[int(each) for each in share])
            await setting.context.outbox.send(aggregator, "metric_share", [body], round=t)
    if setting.me != aggregator:
        return {}
    for party in present:
        if party != setting.me:
            values = (await setting.received_once(party, "metric_share", t)).values
            if len(values) != FIGURES:
                raise Malformed(f"{party} sent {len(values)} figures, not {FIGURES}")
            share = share + np.array(values, dtype=np.uint64)
    records = sum(len(setting.ownership[party]) for party in present)
    return named(setting, [float(each) for each in decode(share, FRACTION)], records)


def named(setting: Setting, figures: list[float], records: int) -> dict[str, float]:
    """Sums over records as the metrics of boosting: see `treetap.trees.metrics`."""
    loss, correct = figures
    if setting.params.regression:
        return {"train_rmse": math.sqrt(max(loss, 0.0) / records) * setting.loss.label_scale}
    return {"train_logloss": loss / records, "train_accuracy": correct / records}


def closed(metrics: Mapping[str, float]) -> pivodl_pb2.ClosedTree:
    """The result of a step that closes a tree."""
    return pivodl_pb2.ClosedTree(
        metrics=[types_pb2.NamedMetric(name=name, value=value) for name, value in metrics.items()]
    )
