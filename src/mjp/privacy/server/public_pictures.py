"""The public pictures from which an attacker learns what pictures look like."""

from pathlib import Path

from mjp.pictures.sets import Folder, Pictures, embedded
from mjp.privacy.samples import sample_pictures
from mjp.privacy.server.prior import Prior, fit_prior

PUBLIC = 400  # pictures that a prior is measured on


def find_prior(folder: Path | None, size: tuple[int, int]) -> Prior:
    """Measured on a folder of classes, or on the embedded training pictures."""
    source: Pictures = embedded("train") if folder is None else Folder(folder)
    native = (32, 32) if folder is None else size
    return fit_prior(sample_pictures(source, PUBLIC, native), size)
