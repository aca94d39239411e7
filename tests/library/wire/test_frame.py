"""The bytes of frames that are put together from the bytes of their contents are those that protobuf writes."""

import pytest

from treetap.party.runtime.context import CiphertextBody
from treetap.wire.frame import PATHS, content_of, filled, serialised
from treetap.wire.v2 import exchange_pb2, growth_pb2

#: Content whose ciphertexts are put beside its head → fields of the head.
OF_CIPHERTEXTS = {"gradients": {"first": 2**40, "count": 300}, "encrypted_labels": {"first": 1, "count": 2**31}}


def _frame() -> exchange_pb2.PeerMessage:
    return exchange_pb2.PeerMessage(job="j" * 63, attempt=300, round=2**31, part=1, last=True, job_digest=bytes(32))


@pytest.mark.parametrize("name", PATHS[exchange_pb2.PeerMessage])
def test_every_content(name: str) -> None:
    """Also an empty one, whose presence says which it is."""
    body = type(content_of(exchange_pb2.PeerMessage(), name))()
    assert serialised(_frame(), name, b"") == filled(_frame(), name).SerializeToString()
    body.MergeFromString(b"\xa2\x06\x03abc")  # a field 100 that no type has: any content will do
    assert serialised(_frame(), name, body.SerializeToString()) == filled(_frame(), name, body).SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_000, 16_384, 2**21])
@pytest.mark.parametrize("name", OF_CIPHERTEXTS)
def test_ciphertexts_beside_the_head(name: str, size: int) -> None:
    """Lengths of one, two, three and four bytes, of each message that holds the next."""
    kind, fields = type(content_of(exchange_pb2.PeerMessage(), name)), OF_CIPHERTEXTS[name]
    ciphertexts = bytes(range(256)) * (size // 256) + bytes(size % 256)
    whole = filled(_frame(), name, kind(ciphertexts=ciphertexts, **fields)).SerializeToString()
    assert serialised(_frame(), name, CiphertextBody(kind(**fields), ciphertexts).serialised()) == whole


def test_ciphertexts_before_other_fields() -> None:
    """Written behind all fields they would be other bytes than protobuf's: marks and sizes of candidates come later."""
    with pytest.raises(AssertionError, match="CandidateSums"):
        CiphertextBody(growth_pb2.CandidateSums(marks=[1]), bytes(64)).serialised()
