"""Where a client keeps its secret key unless it says otherwise. No torch: the command line reads this."""

import os
from pathlib import Path


def default_path() -> Path:
    """The key of this user's client, outside of every run."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "mjp" / "client.key"
