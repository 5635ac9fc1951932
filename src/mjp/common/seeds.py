"""Every seed of a run: pure functions of numbers, no state.

So a run that resumes at step n draws what it would have drawn.
"""

import torch

SAMPLE, STEP, PLAN, ORDER = 1, 2, 3, 4  # what a seed is for


def derive_seed(*parts: int) -> int:
    """One 63-bit seed from several numbers, well mixed (splitmix64)."""
    state = 0
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def epoch_permutation(count: int, seed: int, epoch: int) -> list[int]:
    """The numbers 0 … count − 1 in the order of one epoch."""
    generator = torch.Generator().manual_seed(derive_seed(seed, epoch, ORDER))
    return torch.randperm(count, generator=generator).tolist()
