"""Picture files as the backbone's input, read by worker processes."""

from collections.abc import Callable
from pathlib import Path

from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from mjp.aladin.index.catalogue import File
from mjp.aladin.index.scan import content_hash, file_state
from mjp.common.errors import InputError
from mjp.pictures.dates import date_taken
from mjp.pictures.decode import UnreadablePicture, open_rgb

SHEET = "mjp aladin search"  # the Software tag of our own contact sheets, which may be among the pictures


class PictureReader:
    """Picture files as input of the backbone. JPEGs are decoded at no more than about twice its size."""

    def __init__(self, prepare: Callable[[Image.Image], Tensor], max_pixels: int | None, at_least: int | None) -> None:
        self.prepare = prepare
        self.max_pixels = max_pixels
        self.at_least = at_least

    def __call__(self, path: Path) -> tuple[Tensor | None, int | None]:
        """The input, None for a contact sheet of ours, and when the picture was taken."""
        picture = open_rgb(path, max_pixels=self.max_pixels, at_least=self.at_least)
        if picture.info.get("Software") == SHEET:
            return None, None
        return self.prepare(picture), date_taken(picture)


class PictureFiles(Dataset[tuple[File, Tensor | None]]):
    """Files by number, with the prepared picture if its content is new."""

    def __init__(self, selected: dict[Path, str | None], stored: frozenset[str], reader: PictureReader) -> None:
        self.files = list(selected.items())
        self.stored = stored
        self.reader = reader

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, k: int) -> tuple[File, Tensor | None]:
        path, previous = self.files[k]
        size, modified = file_state(path)
        try:
            if not path.exists():
                raise InputError("there is no such file")
            name = content_hash(path)
            if not size:
                raise InputError("the file is empty")
            if name in self.stored:
                return File(path, name, None, size, modified), None
            image, taken = self.reader(path)
            return File(path, None if image is None else name, None, size, modified, taken), image
        except UnreadablePicture as error:
            return File(path, previous, error.reason, size, modified), None
        except (InputError, OSError) as error:
            return File(path, previous, _reason(error, path), size, modified), None


def _reason(error: Exception, path: Path) -> str:
    """Why a file cannot be read, without its name."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()).removeprefix(f"{path} is ")[:200] or type(error).__name__
