"""How well a text answers a question.

In: a question and segments. Out: a score for each segment.
"""
