"""Privacy: how much of a picture a shared gradient gives away, and how well a reconstruction matches it."""
