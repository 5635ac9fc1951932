"""The command line. One file per command; `main` finds them by name."""
