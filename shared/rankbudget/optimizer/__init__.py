"""Saving tokens before anything has to be cut.

In: texts and examples. Out: shorter texts, chosen examples, and what was saved.
"""
