"""Reproduce the paper in miniature: a grid of runs, measurements with error bars, and a verdict on every claim."""
