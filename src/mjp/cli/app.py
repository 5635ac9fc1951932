"""One local page: drop a photograph, see its jigsaw, what a gradient gives away, your search and the results.

The page is for this machine only: the server listens on 127.0.0.1, loads nothing from elsewhere, and keeps pictures in
memory. With --host other machines can connect if they know the --token.

Example: mjp app --index INDEX
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mjp.common.results import Results


@dataclass
class Options:
    model: tuple[str, ...] = ("mini-cifar10-plain", "mini-cifar10-mjp")
    """Models to compare, each a shipped name, a folder, a training run or timm:NAME; the last one is attacked first."""
    index: str | None = None
    """Folder of an index (mjp aladin index) to search."""
    results: tuple[Path, ...] = ()
    """Folders with results to show; default: the reproduction that comes with the package."""
    port: int = 8378
    """Port to listen on; 0 takes any free one."""
    host: str = "127.0.0.1"
    """Address to listen on. One that other machines can reach, as 0.0.0.0, needs a --token."""
    token: str | None = None
    """At least 16 letters and digits that a browser must know; needed beyond this machine."""
    browser: bool = True
    """Open the page in the browser."""


def run(options: Options) -> Iterator[Results]:
    import webbrowser

    from mjp.app.serve import serving
    from mjp.common.results import make_results

    with serving(
        options.model,
        index=options.index,
        results=options.results,
        host=options.host,
        port=options.port,
        token=options.token,
    ) as (server, address):
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if options.browser:
            webbrowser.open(address)
        yield make_results("app", options, {"address": address})
        server.run()
