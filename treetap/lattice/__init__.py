"""Sums of masked columns under the BFV lattice scheme: one ciphertext holds one number of thousands of records.

A label holder encrypts columns of integers, feature parties blank the entries that their masks exclude, the last one
adds the columns up, and the label holder opens the sum. `parameters` says how large everything is and how well the
masks are hidden, `fixedpoint` turns scores into integers and back, `owner` and `member` are the two roles, `workers`
runs them on worker processes, and `seal` is the seam to the library.
"""
