"""Private set intersection: blinded identifiers and lists of them (docs/alignment.md).

group           the group, and what a backend computes in it
backends        compiled kernels, or libsodium; no other file asks which it is
exponents       secret exponents
kernels         blocks of ids and points, for the workers of `treetap.workers`
lists           lists of points in files: shuffled and intersected by parts
"""
