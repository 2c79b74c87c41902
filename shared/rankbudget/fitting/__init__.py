"""Making the segments of one block fit its grant.

In: segments and a limit. Out: the pieces that stay, and a decision for each segment.
"""
