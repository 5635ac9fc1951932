"""Pictures on their way into an index: only what is new is encoded, and what cannot be read is named."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from aladin.gallery import declared_png, draw_picture, make_gallery, take_in
from mjp.aladin.index import intake as module
from mjp.aladin.index import reading
from mjp.aladin.index.encode import PictureEncoder
from mjp.aladin.index.intake import index_pictures
from mjp.aladin.index.scan import content_hash, find_pictures
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.common.errors import InputError
from mjp.common.terminal import printable


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return make_gallery(tmp_path / "pictures", 4)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of what is encoded from now on."""
    seen: list[str] = []
    encode = PictureEncoder.__call__

    def count(self: PictureEncoder, images: object, ids: list[str]) -> Codes:
        seen.extend(ids)
        return encode(self, images, ids)  # type: ignore[arg-type]

    monkeypatch.setattr(PictureEncoder, "__call__", count)
    return seen


def test_only_what_is_new_or_changed_is_encoded(
    model: Aladin, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, out = counted(monkeypatch), tmp_path / "index"
    take_in(pictures, out, model)
    assert len(seen) == 4
    _, intake = take_in(pictures, out, model)
    assert (len(seen), intake.unchanged, intake.added) == (4, 4, 0)
    old = content_hash(pictures / "a" / "01.png")
    draw_picture(pictures / "a" / "01.png", 71)
    draw_picture(pictures / "new.png", 72)
    index, intake = take_in(pictures, out, model)
    assert (len(seen), intake.unchanged, intake.added, len(index)) == (6, 3, 2, 5)
    assert index.row(old) is None  # no file has that content any more
    (pictures / "new.png").touch()
    _, intake = take_in(pictures, out, model)  # another time, the same content
    assert (len(seen), intake.linked) == (6, 1)


@pytest.mark.parametrize("commit", [2, 256])  # the copy in another batch than its original, or in the same
def test_the_same_picture_at_two_paths_is_stored_once(
    model: Aladin, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    monkeypatch.setattr(module, "COMMIT_PICTURES", commit)
    shutil.copy(pictures / "a" / "01.png", pictures / "b" / "99.png")
    index, intake = take_in(pictures, tmp_path / "index", model)
    assert (intake.added, intake.linked, len(index)) == (4, 1, 4)
    paths = index.catalogue.paths(content_hash(pictures / "b" / "99.png"))
    assert paths == [(pictures / name).resolve() for name in ("a/01.png", "b/99.png")]


def test_two_folders_can_share_an_index(model: Aladin, pictures: Path, tmp_path: Path) -> None:
    take_in(pictures, tmp_path / "index", model)
    index, intake = take_in(make_gallery(tmp_path / "other", 6), tmp_path / "index", model)
    assert (intake.added, intake.linked, intake.missing, len(index)) == (2, 4, [], 6)


def test_what_cannot_be_read_is_named_with_the_reason(model: Aladin, pictures: Path, tmp_path: Path) -> None:
    (pictures / "empty.jpg").write_bytes(b"")
    (pictures / "text.png").write_text("no picture")
    (pictures / "huge.png").write_bytes(declared_png(40_000, 40_000))
    (pictures / "large.png").write_bytes(declared_png(10_000, 10_000))  # PIL warns, and finds no pixels
    half = (pictures / "a" / "01.png").read_bytes()
    (pictures / "half.png").write_bytes(half[: len(half) // 2])
    (pictures / "nowhere.png").symlink_to(pictures / "gone.png")
    os.mkfifo(pictures / "pipe.png")
    index, intake = take_in(pictures, tmp_path / "index", model)
    problems = {file.path.name: str(file.problem) for file in intake.unreadable}
    names = ["empty.jpg", "half.png", "huge.png", "large.png", "nowhere.png", "pipe.png", "text.png"]
    assert (len(index), sorted(problems)) == (4, names)
    assert "empty" in problems["empty.jpg"]
    assert "million pixels" in problems["huge.png"]
    assert "not a picture" in problems["text.png"]
    assert problems["pipe.png"] == "not a regular file"
    assert problems["nowhere.png"] == "there is no such file"
    Image.new("RGB", (9, 9)).save(pictures / "empty.jpg")
    index, intake = take_in(pictures, tmp_path / "index", model)  # they are tried again
    assert (len(index), intake.added, len(intake.unreadable)) == (5, 1, 6)


def test_nothing_to_index_is_said(model: Aladin, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains no picture"):
        take_in(tmp_path / "empty", tmp_path / "index", model)
    with pytest.raises(InputError, match="there is no folder"):
        take_in(tmp_path / "nowhere", tmp_path / "index", model)
    assert not (tmp_path / "index").exists()
    (tmp_path / "empty" / "zero.jpg").touch()
    with pytest.raises(InputError, match=r"none of the 1 pictures .* the file is empty"):
        take_in(tmp_path / "empty", tmp_path / "index", model)
    assert not (tmp_path / "index").exists()


def test_files_that_have_gone_leave_when_asked_to(model: Aladin, pictures: Path, tmp_path: Path) -> None:
    take_in(pictures, tmp_path / "index", model)
    (pictures / "a" / "01.png").unlink()
    index, intake = take_in(pictures, tmp_path / "index", model)
    assert (len(intake.missing), len(index)) == (1, 4)
    index, _ = take_in(pictures, tmp_path / "index", model, prune=True)
    assert len(index) == len(Index(tmp_path / "index")) == 3


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody look into a folder, not even root, who runs tests in containers."""
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if not isinstance(path, int) and Path(path) == folder.resolve():  # rmtree scans open folders
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)


def test_what_cannot_be_looked_into_is_named_and_not_taken_for_gone(
    model: Aladin, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(pictures, tmp_path / "index", model)
    (pictures / "b" / "00.png").unlink()
    with monkeypatch.context() as patch:
        close(pictures / "a", patch)
        index, intake = take_in(pictures, tmp_path / "index", model, prune=True)
    assert intake.closed == {(pictures / "a").resolve(): "Permission denied"}
    assert [path.name for path in intake.missing] == ["00.png"]
    assert len(index) == 3
    _, intake = take_in(pictures, tmp_path / "index", model)
    assert (intake.closed, intake.missing, intake.unchanged) == ({}, [], 3)


def test_a_folder_that_cannot_be_looked_into_at_all(
    model: Aladin, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(pictures, monkeypatch)
    with pytest.raises(InputError, match="cannot be opened: Permission denied"):
        take_in(pictures, tmp_path / "index", model)


def test_a_known_picture_that_cannot_be_read_keeps_its_entry(model: Aladin, pictures: Path, tmp_path: Path) -> None:
    take_in(pictures, tmp_path / "index", model)
    path = (pictures / "a" / "01.png").resolve()
    content, name = path.read_bytes(), content_hash(path)
    path.write_bytes(b"")
    for _ in range(2):  # the second time the problem is known
        index, intake = take_in(pictures, tmp_path / "index", model, prune=True)
        assert [file.path for file in intake.unreadable] == [path]
        assert (len(index), intake.added, intake.linked) == (4, 0, 0)
        assert index.catalogue.paths(name) == [path]
    path.write_bytes(content)
    index, intake = take_in(pictures, tmp_path / "index", model)
    assert (len(index), intake.unreadable, intake.linked) == (4, [], 1)


def test_hidden_files_and_other_files_are_left_out(tmp_path: Path) -> None:
    for name in ("x.PNG", ".x.png", ".cache/x.png", "x.txt", "y/x.webp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path.resolve()).as_posix() for path in find_pictures(tmp_path)[0]]
    assert found == ["x.PNG", "y/x.webp"]


def test_file_names_need_not_be_text(model: Aladin, pictures: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(pictures) + b"/\xff\x1b[31m.png"))
    try:
        draw_picture(odd, 50)
    except OSError:
        pytest.skip("this file system wants text")
    index, _ = take_in(pictures, tmp_path / "index", model)
    (path,) = index.catalogue.paths(content_hash(odd))
    assert path.name == odd.name
    assert path.is_file()
    assert printable(path.name) == "��[31m.png"


def test_work_is_committed_by_time_however_slowly_pictures_are_read(
    model: Aladin, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture takes four seconds: after the second one has been read, more than COMMIT_SECONDS have passed."""
    now, committed = [0.0], []
    open_rgb, add = reading.open_rgb, Index.add

    def slow(path: Path, **settings: Any) -> Image.Image:
        now[0] += 4
        return open_rgb(path, **settings)

    def note(self: Index, ids: Any, codes: Any, files: Any) -> None:
        committed.append((now[0], len(files)))
        add(self, ids, codes, files)

    monkeypatch.setattr(reading, "open_rgb", slow)
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(Index, "add", note)
    index, _ = take_in(pictures, tmp_path / "index", model)
    assert [entry for entry in committed if entry[1]] == [(8.0, 2), (16.0, 2)]
    assert len(index) == 4
    assert module.COMMIT_SECONDS + 4 < 10  # what a kill costs


def test_without_a_terminal_progress_is_printed_in_lines(
    model: Aladin, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mjp.common.progress.INTERVAL", 0.0)
    take_in(pictures, tmp_path / "index", model)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", ")[0] for line in lines] == [f"indexing: {25 * n} % ({n} of 4)" for n in (1, 2, 3, 4)]


def test_pictures_beyond_the_pixel_limit_are_skipped_before_they_are_decoded(
    model: Aladin, pictures: Path, tmp_path: Path
) -> None:
    report = index_pictures(pictures, tmp_path / "index", model=model, workers=0, max_pixels=48 * 40)
    assert report.unreadable == []
    Image.new("RGB", (48, 41)).save(pictures / "larger.png")
    report = index_pictures(pictures, tmp_path / "index", model=model, workers=0, max_pixels=48 * 40)
    (file,) = report.unreadable
    assert file.path.name == "larger.png"
    assert "48 x 41 pixels" in str(file.problem)
    report = index_pictures(pictures, tmp_path / "index", model=model, workers=0)
    assert (report.added, report.unreadable) == (1, [])


def test_large_jpegs_are_decoded_at_a_fraction_of_their_size(
    model: Aladin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, prepare = list[tuple[int, int]](), model.vision.prepare
    Image.radial_gradient("L").resize((1200, 900)).convert("RGB").save(
        make_gallery(tmp_path / "pictures", 1) / "big.jpg"
    )

    def note(vision: Any, picture: Image.Image, *arguments: Any) -> Any:
        sizes.append(picture.size)
        return prepare(picture, *arguments)

    monkeypatch.setattr(type(model.vision), "prepare", note)
    take_in(tmp_path / "pictures", tmp_path / "index", model)
    assert sorted(sizes) == [(48, 40), (150, 113)]  # an eighth: the backbone takes 32 pixels


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"workers": -1}, "--workers must be a whole number from 0"),
        ({"workers": 10**6}, "--workers must be a whole number from 0"),
        ({"max_pixels": 0}, "--max-pixels must be a whole number of at least 1"),
        ({"mask_ratio": float("nan")}, "--mask-ratio must lie between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(
    model: Aladin, pictures: Path, tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        index_pictures(pictures, tmp_path / "index", model=model, **settings)
    assert not (tmp_path / "index").exists()
