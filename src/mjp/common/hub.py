"""Whether the model hub can be reached, found out in seconds: its own client tries for half a minute."""

import os
import socket
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies

SECONDS = 3.0


@cache
def hub_is_reachable() -> bool:
    """One connection, one try. With a proxy only the hub's client can tell, so the answer is yes."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if getproxies().get("https"):
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=SECONDS).close()
    except OSError:
        return False
    return True
