"""`mjp aladin COMMAND`: retrieval. One file per command, as in the folder above."""

COMMANDS = {
    "train": ("mjp.cli.aladin.train", "align patches and words, then distil one vector per picture; resumable"),
    "index": ("mjp.cli.aladin.index", "make a folder of pictures searchable; incremental and resumable"),
    "search": ("mjp.cli.aladin.search", "find pictures with words or with a picture, and see why they match"),
    "serve": ("mjp.cli.aladin.serve", "search on a page in the browser, and with JSON"),
    "duplicates": ("mjp.cli.aladin.duplicates", "pictures that are nearly the same, in groups"),
    "push": ("mjp.cli.aladin.push", "send an index to Qdrant, for more than one machine serves"),
    "delete": ("mjp.cli.aladin.delete", "remove pictures from an index"),
    "stats": ("mjp.cli.aladin.stats", "what an index contains, what could not be read, and whether it is damaged"),
    "bench": ("mjp.cli.aladin.bench", "latency of encoding, search and re-ranking over gallery sizes"),
    "eval": ("mjp.cli.aladin.eval", "recall, NDCG and retention of all scorers on one split, with intervals"),
}

HELP = """usage: mjp aladin COMMAND [options]

Find pictures with words: a fine-grained alignment score, and one vector per picture distilled from it.

commands:
{commands}

mjp aladin COMMAND --help explains a command."""
