"""Making texts shorter, each to an exact number of tokens.

In: a text and a limit. Out: the text cut, extracted, templated or summarized.
"""
