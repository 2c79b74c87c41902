"""Reading and measuring a host's messages.

In: host messages. Out: their neutral form, their tokens, and text that is safe inside a prompt.
"""
