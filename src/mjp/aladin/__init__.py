"""ALADIN: find pictures with words. A fine-grained alignment score, and one vector per picture distilled from it."""
