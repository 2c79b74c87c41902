"""The command line.

In: files and options. Out: printed prompts and reports.
"""
