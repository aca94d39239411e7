"""Oblivious transfers of bits: the label holder gets (record in the node) AND (record goes left), and no more.

    base.py        128 transfers of seeds, once a pair of parties and attempt, on edwards25519
    extension.py   from them one bit a record, for any number of streams: a stream is a node of a tree

The label holder is the extension's receiver and the base's sender; a feature party is the other one in both. Nothing
here sends or stores: messages are bytes in and bytes out. `docs/cryptography.md`, "Left bits", has what is proven.
"""
