"""When a picture was taken, as its file says."""

from contextlib import suppress
from datetime import datetime

from PIL import ExifTags, Image

EARLIEST, LATEST = -(2**63), 2**63 - 1  # nanoseconds that 64 bits hold: the years 1677 to 2262


def date_taken(picture: Image.Image) -> int | None:
    """Nanoseconds since 1970 from a picture's EXIF marks; cameras write local time. None without a usable mark."""
    marks = picture.getexif()
    camera = marks.get_ifd(ExifTags.IFD.Exif)
    for text in (camera.get(ExifTags.Base.DateTimeOriginal), marks.get(ExifTags.Base.DateTime)):
        with suppress(ValueError, TypeError, OverflowError, OSError):  # cameras without a clock write zeros or blanks
            date = int(datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").timestamp()) * 10**9
            if date == bounded(date):  # some programs write the year 9999 for a date that they do not know
                return date
    return None


def bounded(date: int) -> int:
    """A time in nanoseconds since 1970, or the nearest one that a catalogue can hold."""
    return min(max(date, EARLIEST), LATEST)
