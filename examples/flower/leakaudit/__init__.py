"""Federated training of a small ViT with MJP, every update audited before it leaves."""
