"""Training: one visible loop around `MJP`, the same on a laptop and under torchrun, killable at any moment."""
