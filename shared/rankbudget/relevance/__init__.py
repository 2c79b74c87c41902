"""Scored: how much each segment, sentence, turn or example has to do with the question. Nothing here cuts."""
