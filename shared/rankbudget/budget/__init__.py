"""The limits of a prompt.

In: a window, ratios, sizes, ranks. Out: integers: what each block is granted.
"""
