"""Making texts shorter: cut, extracted, templated, rewritten, each to an exact number of tokens."""
