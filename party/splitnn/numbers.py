"""Embeddings and gradients as messages, and the checks of those that come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import torch

from treetap.errors import Malformed, refuse
from treetap.neural.numbers import from_bytes, to_bytes
from treetap.party.runtime.context import MESSAGE_BYTES, StepContext
from treetap.party.splitnn.bodies import Numbers, bodies
from treetap.wire.frame import content_of

#: Seconds after which numbers are sent although there are few.
LONGEST_S = 2.0


async def send(
    context: StepContext, to: str, kind: str, values: torch.Tensor, wire_type: str, round: int, stage: int = 0
) -> None:
    """Send a tensor (n, width) in messages of bounded size."""
    content = to_bytes(values, wire_type)
    await context.outbox.send(to, kind, bodies(kind, content, values.shape[1], wire_type), round=round, stage=stage)


async def send_blocks(
    context: StepContext,
    to: str,
    kind: str,
    blocks: AsyncGenerator[torch.Tensor, None],
    wire_type: str,
    round: int,
    stage: int = 0,
) -> None:
    """Send a tensor whose blocks of rows (n, width) are computed one after the other, as one series.

    Its messages have about the usual size, or go sooner, so that their reader hears of them.
    """
    series, now = context.outbox.open(to, kind, round, stage), asyncio.get_running_loop().time
    waiting, width, since = bytearray(), 0, now()

    async def put() -> None:
        for body in bodies(kind, bytes(waiting), width, wire_type):
            await series.put(body)
        waiting.clear()

    async with aclosing(blocks):
        async for values in blocks:
            width = values.shape[1]
            waiting += to_bytes(values, wire_type)
            if len(waiting) >= MESSAGE_BYTES or now() - since > LONGEST_S:
                await put()
                since = now()
    if waiting:
        await put()
    await series.close()


async def take(
    context: StepContext,
    sender: str,
    kind: str,
    shape: tuple[int, int],
    wire_type: str,
    round: int,
    stage: int = 0,
    place: str = "",
    *,
    patience: int = 1,
) -> torch.Tensor:
    """A tensor of this shape, (rows, width), that a party has sent. `patience`: see `Mailbox.series`.

    `place`: the name of the round and stage in errors; by default those of a training.

    Raises:
        Malformed: rows, width, type or length are others, or a number is not finite; it names the sender and the place.
    """
    rows, width = shape
    parts: list[torch.Tensor] = []
    where = f"{sender} sent {kind} of {place or f'epoch {round}, batch {stage}'}"
    async for message in context.mailbox.series(sender, kind, round, stage, patience=patience):
        body = cast(Numbers, content_of(message, kind))
        refuse(
            (body.width != width, f"{where} with width {body.width}, where the job has {width}"),
            (body.wire_type != wire_type, f"{where} as {body.wire_type!r}, where the job has {wire_type}"),
            (
                sum(len(part) for part in parts) + body.rows > rows,
                f"{where} with more rows than the {rows} that there are",
            ),
            kind=Malformed,
        )
        try:
            parts.append(from_bytes(body.values, body.rows, width, wire_type))
        except ValueError as fault:
            raise Malformed(f"{where} with {fault}") from None
    numbers = torch.cat([torch.zeros(0, width), *parts])
    if len(numbers) != rows:
        raise Malformed(f"{where} with {len(numbers)} rows of {rows}")
    return numbers
