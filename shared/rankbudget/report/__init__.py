"""What became of every piece, and why.

In: decisions and totals. Out: a report as table, JSON or HTML.
"""
