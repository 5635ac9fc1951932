"""Pictures that people drop on the page. They are kept in memory, never written, and gone with the process.

Of a picture only two things are kept: its middle square to look at, and the same square as each model takes it.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock

from PIL import Image
from torch import Tensor

from mjp.app.models import Answer
from mjp.common.errors import InputError
from mjp.pictures.crop import eight_bit_square, middle_square
from mjp.pictures.decode import decode_upload
from mjp.pictures.landscape import landscape
from mjp.pictures.tensors import to_image

Size = tuple[int, int]

MAX_BYTES = 30_000_000  # of an upload
MAX_PICTURES = 16  # the oldest goes when another one comes
SIDE = 1024  # pixels of the square that is shown, at most
SAMPLE = "sample"  # the picture of those who have not dropped one


@dataclass(frozen=True)
class Picture:
    square: Image.Image
    inputs: dict[Size, Tensor]  # (3, H, W) in [0, 1] by the size that a model takes
    answers: dict[str, Answer] = field(default_factory=dict)  # what models said about it, without a jigsaw


class Uploads:
    """The pictures by an unguessable name. Safe for threads."""

    def __init__(self, sizes: Iterable[Size], sample: Image.Image | None = None) -> None:
        self.sizes = frozenset(sizes)
        self.lock = Lock()
        self.decoding = Lock()  # one at a time: a large picture takes much memory while it is decoded
        self.pictures: OrderedDict[str, Picture] = OrderedDict()
        self.sample = self._prepare(sample or to_image(landscape(448)[0]))

    def add(self, content: bytes) -> str:
        """The name under which the picture in these bytes is kept from now on."""
        with self.decoding:
            picture = self._prepare(decode_upload(content))
        name = secrets.token_urlsafe(16)
        with self.lock:
            self.pictures[name] = picture
            while len(self.pictures) > MAX_PICTURES:
                self.pictures.popitem(last=False)
        return name

    def find(self, name: str) -> Picture:
        if name == SAMPLE:
            return self.sample
        with self.lock:
            if name not in self.pictures:
                raise InputError("this picture is not in memory any more: choose it again")
            self.pictures.move_to_end(name)
            return self.pictures[name]

    def _prepare(self, picture: Image.Image) -> Picture:
        inputs = {size: eight_bit_square(picture, size) for size in self.sizes}
        side = min(SIDE, *picture.size)
        square = picture.resize((side, side), Image.Resampling.BICUBIC, box=middle_square(picture.size))
        return Picture(square, inputs)
