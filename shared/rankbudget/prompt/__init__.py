"""One plan for a whole prompt.

In: a `PromptRequest`. Out: a `Plan`: what is kept of every block, the rendered form that was counted, the
report.
"""
