"""The report: results of several commands and models next to each other, on one page that needs nothing else."""
