"""Serving: the records of a prediction come from requests of clients at the label holder, until somebody ends it.

A block is what clients have asked about since the last one (docs/serving.md). The coordinator sees how many records
that are, and how serving goes; neither who asks nor about whom.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from coordinator.protocols import PredictionCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, together
from treetap.wire.v2 import prediction_pb2, serving_pb2, setup_pb2

#: Seconds between two times at which every party says what the job has cost it so far, hence that it is there.
LOOK_S = 5.0
#: Seconds of serving after which an attempt has shown that it can, also if nobody asked.
PROVEN_S = 60.0


async def serve(
    roster: Roster, opening: prediction_pb2.OpenModel, course: PredictionCourse, progress: Progress
) -> NoReturn:
    """Score what clients ask about, block after block.

    1. The label holder waits for requests, a few seconds at a time, so that each step keeps its deadline.
    2. What has come is a block, which the protocol scores as it scores any other.

    It ends with an error only, or when it is cancelled.
    """
    label_holder = opening.label_holder
    opened = await course.begin(roster, opening, progress)
    progress.phase("serve")
    roster.log_level = logging.DEBUG  # of what comes again and again, the metrics tell enough
    loop = asyncio.get_running_loop()
    began = look = loop.time()
    block, waits = 0, 0
    while True:
        asking = [roster.ask_all([label_holder], "await_requests", serving_pb2.AwaitRequests(), block, waits)]
        if loop.time() >= look or progress.ending:
            asking.append(roster.ask_all(roster.names, "account", setup_pb2.Account()))
            look = loop.time() + LOOK_S
        heard, *accounts = await together(*asking)
        if progress.ending and not accounts:
            accounts = [await roster.ask_all(roster.names, "account", setup_pb2.Account())]
        for told in accounts:
            progress.accounts({party: answer.setup.accounted for party, answer in told.items()})
        awaited = heard[label_holder].protocol.serving.awaited_requests
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
