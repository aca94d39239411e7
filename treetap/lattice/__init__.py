"""Sums of masked columns under the BFV lattice scheme: one ciphertext holds one number of thousands of records.

The label holder encrypts columns of integers, feature parties blank the entries that their masks exclude, the last one
adds the columns up, and the label holder decrypts the sum. `parameters` computes sizes and how well masks are hidden,
`columns` turns scores into integers and back, `kernels` has the two roles on their workers, `scheme` has ciphertexts as
arrays and as bytes. Files that begin with `histogram` have the encrypted histograms of trees.
"""
