"""`mjp aladin COMMAND`: retrieval. One file per command, as one floor above."""

COMMANDS = {
    "train": ("mjp.cli.aladin.train", "align patches and words, then distil one vector per picture; resumable"),
    "eval": ("mjp.cli.aladin.eval", "recall, NDCG and retention of all scorers on one split, with intervals"),
}

HELP = """usage: mjp aladin COMMAND [options]

Find pictures with words: a fine-grained alignment score, and one vector per picture distilled from it.

commands:
{commands}

mjp aladin COMMAND --help explains a command."""
