"""One conversation within a limit.

In: host messages and a limit. Out: the positions that stay, shortened copies, and a decision for each
message.
"""
