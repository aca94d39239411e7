"""Serving: a prediction of the records that clients request at the label holder, until an operator cancels it.

A block holds the records that clients have requested since the last one (docs/serving.md). The coordinator sees the
number of records and the figures of serving; neither the clients nor the records.
"""

from __future__ import annotations

import asyncio
import logging

from coordinator.protocols import PredictionCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, answered
from treetap.process.together import together
from treetap.wire.v2 import prediction_pb2, serving_pb2, setup_pb2

#: Seconds between two requests for every party's account, which also shows that the party is present.
LOOK_S = 5.0
#: Seconds of serving after which an attempt counts as one that served, also without any request.
PROVEN_S = 60.0


async def serve(
    roster: Roster, opening: prediction_pb2.OpenModel, course: PredictionCourse, progress: Progress
) -> None:
    """Score the records that clients request, block after block.

    1. The label holder waits for requests, a few seconds at a time, so that each step keeps its deadline.
    2. The records requested so far are a block, which the protocol scores as any other.

    Serving ends with an error, when it is cancelled, or between two blocks once a party that was away is back.
    """
    label_holder = opening.recipient
    opened = await course.begin(roster, opening, progress)
    progress.phase("serve")
    roster.log_level = logging.DEBUG  # the metrics cover these repeated steps
    loop = asyncio.get_running_loop()
    began = look = loop.time()
    block, waits = 0, 0
    while progress.ending or not progress.back:
        asking = [roster.ask_all([label_holder], "await_requests", serving_pb2.AwaitRequests(), block, waits)]
        if loop.time() >= look or progress.ending:
            asking.append(roster.ask_all(roster.names, "account", setup_pb2.Account()))
            look = loop.time() + LOOK_S
        heard, *accounts = await together(*asking)
        if progress.ending and not accounts:
            accounts = [await roster.ask_all(roster.names, "account", setup_pb2.Account())]
        for answers in accounts:
            progress.accounts({party: answered(party, answer, "accounted") for party, answer in answers.items()})
        awaited = answered(label_holder, heard[label_holder], "awaited_requests")
        progress.serving(awaited.figures)
        progress.served = progress.served or loop.time() - began >= PROVEN_S
        if progress.ending:
            progress.settled()
        if awaited.records:
            await course.score(roster, opening, opened, block, progress)
            progress.served = True
            block, waits = block + 1, 0
        else:
            waits += 1
