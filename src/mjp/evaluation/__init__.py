"""Evaluation: what a model can do, and how sure we are, from one pass over the pictures."""
