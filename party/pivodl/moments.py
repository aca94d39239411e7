"""Mean and spread of a regression's labels, by sums under the first tree's encryption party's key."""

from __future__ import annotations

from party.pivodl.own_labels import OwnLabels
from party.pivodl.party_keys import PartyKeys
from party.pivodl.setting import Setting
from treetap.additive.paillier.shared_sums import SharedSums
from treetap.errors import Malformed
from treetap.trees.shared_label_loss import Moments, SharedLabelLoss
from treetap.wire.v2 import pivodl_pb2

#: Σy, Σy² and the number of records.
NUMBERS = 3
#: Bytes of an opened sum, of whatever size: 2^31 squares of labels up to 2^40 in units of 2^-64 take 176 bits.
NUMBER_BYTES = 24


async def share_moments(setting: Setting, own: OwnLabels, keys: PartyKeys, sums: SharedSums) -> None:
    """Set the loss; where its scales are open, add up y and y² over all parties.

    1. Every party with labels encrypts its sums under the encryption party's key, for the aggregation party.
    2. The aggregation party multiplies and re-randomises them, for the encryption party.
    3. The encryption party opens them, and sends them to all.

    Raises:
        DataError: a label is too large.
    """
    if not setting.params.needs_moments:
        setting.loss = SharedLabelLoss(setting.params)
        return
    aggregator, opener = setting.draws.aggregation_party(0), setting.draws.encryption_party(0)
    key, send = keys.of(opener), setting.context.outbox.send
    mine = b""
    if setting.me in setting.owners:
        found = Moments.of(own.values)
        mine = await sums.encrypt(key, [found.total, found.squares, found.count])
        if setting.me != aggregator:
            await send(aggregator, "moment_share", [pivodl_pb2.MomentShare(ciphertexts=mine)])
    if setting.me == aggregator:
        shares = [mine] if mine else []
        for party in setting.owners:
            if party != setting.me:
                shares.append((await setting.received_once(party, "moment_share")).ciphertexts)
        _check(shares, key.ciphertext_bytes)
        joint = await sums.add(key, shares, key.bits, 1, range(NUMBERS))
        await send(opener, "joint_moments", [pivodl_pb2.JointMoments(ciphertexts=joint)])
    if setting.me == opener:
        joint = (await setting.received_once(aggregator, "joint_moments")).ciphertexts
        _check([joint], key.ciphertext_bytes)
        total, squares, count = await keys.holder.open_numbers(joint)
        if count != setting.records:
            raise Malformed(f"the parties have added up {count} labels of {setting.records} records")
        body = pivodl_pb2.LabelMoments(sum=_signed(total), sum_of_squares=_signed(squares))
        await setting.broadcast("label_moments", [body])
    else:
        opened = await setting.received_once(opener, "label_moments")
        total, squares = (int.from_bytes(each, "big", signed=True) for each in (opened.sum, opened.sum_of_squares))
    if squares * setting.records < total * total:
        raise Malformed(f"{opener} has opened a sum of squares that is too small for its sum of labels")
    setting.loss = SharedLabelLoss(setting.params, Moments(total, squares, setting.records))


def _signed(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big", signed=True)


def _check(shares: list[bytes], width: int) -> None:
    if any(len(share) != NUMBERS * width for share in shares):
        raise Malformed(f"sums of labels are {NUMBERS} ciphertexts")
