"""When a picture was taken, as its file says."""

from contextlib import suppress
from datetime import datetime

from PIL import ExifTags, Image


def date_taken(picture: Image.Image) -> int | None:
    """Nanoseconds since 1970 from a picture's EXIF marks; cameras write local time. None without a mark."""
    marks = picture.getexif()
    camera = marks.get_ifd(ExifTags.IFD.Exif)
    for text in (camera.get(ExifTags.Base.DateTimeOriginal), marks.get(ExifTags.Base.DateTime)):
        with suppress(ValueError, TypeError, OverflowError, OSError):  # cameras without a clock write zeros or blanks
            return int(datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").timestamp()) * 10**9
    return None
