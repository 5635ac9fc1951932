"""`mjp app` from end to end: the models, the process of the attacks, the index, and the socket."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mjp.aladin.index.thumbnails import thumbnail_folder
from mjp.aladin.search.searcher import open_index
from mjp.common.errors import InputError
from mjp.pictures.sets import embedded
from mjp.pictures.thumbnail_files import ThumbnailFiles
from mjp.pictures.thumbnails import Thumbnails
from mjp.report.runs import collect
from mjp.report.sections import KINDS
from mjp.reproduce.committed import committed_results

if TYPE_CHECKING:
    from PIL import Image
    from starlette.applications import Starlette

    from mjp.common.web.server import Server

THUMBNAILS = 256_000_000  # bytes on disk
SAMPLE = 800  # number of the embedded picture to begin with, a horse
SMALL = 64  # pixels: below it a model is shown a picture of the kind that it was trained on


@contextmanager
def serving(
    models: Sequence[str],
    *,
    index: str | None,
    results: Sequence[Path],
    host: str,
    port: int,
    token: str | None,
) -> Iterator[tuple["Server", str]]:
    """A server that is listening, and the address to open."""
    try:
        from mjp.app.api import Api
        from mjp.app.application import make_app
        from mjp.app.pages import Pages
        from mjp.common.web.server import address_of, check_token, make_server
    except ImportError as error:
        raise InputError("the page needs Starlette and uvicorn: pip install 'mjp[serve]'") from error
    from mjp.app.jobs import Jobs
    from mjp.app.leak import work
    from mjp.app.models import Models
    from mjp.app.pictures import Uploads

    check_token(host, token)
    loaded = Models(models)
    uploads = Uploads((subject.size for subject in loaded.subjects.values()), _sample(loaded[loaded.default].size[0]))
    search = None if index is None else _search(index)
    folders = list(results) or committed_results()
    collect(folders, kinds=KINDS)  # a folder that cannot be shown is refused now, not when somebody looks at it
    jobs = Jobs(work, tuple(loaded.subjects))
    try:
        app = make_app(Pages(loaded, uploads, folders), Api(loaded, uploads, jobs), search)
        with make_server(app, host=host, port=port, token=token) as server:
            yield server, address_of(server, host=host, token=token)
    finally:
        jobs.close()


def _sample(side: int) -> "Image.Image | None":
    """An embedded picture for small models, which know little else; None for the landscape."""
    return embedded("val").load(SAMPLE) if side <= SMALL else None


def _search(index: str) -> "Starlette":
    from mjp.aladin.search.web.app import make_app
    from mjp.aladin.search.web.parameters import Defaults
    from mjp.app.pages import VIEWS

    searcher = open_index(index, model=None, engine="exact", max_pixels=None, device="auto")
    thumbnails = Thumbnails(ThumbnailFiles(thumbnail_folder(Path(index)), THUMBNAILS))
    return make_app(searcher, thumbnails, Defaults(), views=VIEWS)
