"""Parcels that are changed on their way, and what is to come of a prediction of which one is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, run
from tests.worlds import assert_oracles_scores
from treetap.additive.paillier.secret_key import SecretKey
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2

Change = Callable[[exchange_pb2.PeerMessage], None]
#: Sender, receiver, kind of the parcel, what is changed in it, and the error that is to come of it.
Lie = tuple[str, str, str, Change, str]


def longer_key(parcel: exchange_pb2.PeerMessage) -> None:
    """Another key, of 2048 bits."""
    parcel.setup.public_key.modulus = SecretKey.generate(2048).public.to_bytes()


def assert_named(lie: Lie, folder: Path, asked: Callable[[str], jobs_pb2.PredictRequest], **exact: Any) -> None:
    """An error that says what is wrong, no file; then, on an honest line, the right scores, as `exact` as they are."""
    sender, receiver, kind, change, message = lie

    async def main() -> None:
        federation = Federation(folder, HERE.tables, silence_s=5.0)
        await federation.train(JOB)
        changed = []

        def tamper(by: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if (by, to, name_of(parcel)) == (sender, receiver, kind) and not changed:
                changed.append(kind)
                change(parcel)
            return parcel

        federation.tamper = tamper
        status = await federation.predict(asked("p"))
        assert changed
        assert status.state in ("failed", "interrupted")
        assert re.search(message, status.error), status.error
        for state in federation.states.values():
            assert list((state / "predictions").iterdir()) == []
            assert federation.node(state.parent.name)._sessions == {}
        status = await federation.predict(asked("again"))
        assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16, **exact)
        await federation.close()

    run(main())


def with_fields(**fields: Any) -> Callable[[Any], None]:
    """Give fields other contents."""

    def change(content: Any) -> None:
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(content, name)[:]
                getattr(content, name).extend(value)
            else:
                setattr(content, name, value)

    return change
