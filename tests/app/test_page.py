"""What the page answers, through a real server: pictures, jigsaws, counting, attacks, and what is refused."""

import json
import time
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import mjp
from app.site import MODELS, photo, running
from mjp.app.leak import Question, choose_attacks
from mjp.app.models import DRAWS, plans
from mjp.app.pictures import MAX_PICTURES
from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.models import as_subject, find_model
from mjp.pictures.crop import open_square
from mjp.pictures.tensors import normalise
from mjp.privacy.examine.pictures import audit_pictures


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    with running() as (_, address):
        yield address


def ask(address: str, body: Any = None, method: str | None = None, **headers: str) -> tuple[int, bytes, Any]:
    request = Request(address, body, {key.replace("_", "-"): value for key, value in headers.items()}, method=method)
    try:
        with urlopen(request) as answer:
            return answer.status, answer.read(), answer.headers
    except HTTPError as error:
        return error.code, error.read(), error.headers


def ask_json(address: str, *arguments: Any, status: int = 200, **settings: Any) -> dict[str, Any]:
    code, body, _ = ask(address, *arguments, **settings)
    assert code == status, body
    content: dict[str, Any] = json.loads(body)
    return content


def send(home: str, content: bytes) -> str:
    return str(ask_json(f"{home}/api/pictures", content, status=201)["picture"])


def run_attacks(home: str, **question: Any) -> tuple[dict[str, Any], str]:
    asked = ask_json(f"{home}/api/leak", json.dumps(question).encode(), status=202)
    while True:
        run = ask_json(f"{home}/api/jobs/{asked['job']}")
        if run["state"] not in ("waiting", "running"):
            return run, run["command"]
        time.sleep(0.2)


def test_every_view_answers_and_names_the_others(home: str) -> None:
    for address in ("/", "/leak", "/search/", "/results"):
        status, body, headers = ask(home + address)
        assert status == 200
        for other in ("/leak", "/search/", "/results"):
            assert f'href="{other}"'.encode() in body
        assert body.count(b'aria-current="page"') == 1
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_model_gets_the_picture_as_the_command_line_would(home: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(photo(side=77))
    name = send(home, path.read_bytes())
    answers = ask_json(f"{home}/api/jigsaw?picture={name}&ratio=0.5&seed=3")
    for row in answers["models"]:
        subject = find_model(row["model"])
        subject.model.eval()
        images = normalise(open_square(path, 32), subject.mean, subject.std)
        plan = plans((8, 8), 0.5, "blockwise", 3)
        first = plan._replace(mask=plan.mask[:1], permutation=plan.permutation[:1], inverse=plan.inverse[:1])
        for part, logits in (("before", subject.model(images)), ("after", subject.model(images, plan=first).logits)):
            assert subject.model.classes is not None
            assert row[part]["label"] == subject.model.classes[int(logits.argmax())]
            assert row[part]["probability"] == pytest.approx(logits.softmax(1).max().item(), abs=1e-5)
    assert answers["masked"] == int(plans((8, 8), 0.5, "blockwise", 3).mask[0].sum())


def test_consistency_is_counted_in_parts_that_add_up(home: str) -> None:
    address = f"{home}/api/consistency?picture=sample&ratio=0.9&seed=1"
    whole = ask_json(f"{address}&first=0&count={DRAWS}")
    parts = [ask_json(f"{address}&first={first}&count=10") for first in range(0, DRAWS, 10)]
    for number, row in enumerate(whole["models"]):
        assert sum(part["models"][number]["same"] for part in parts) == row["same"]
        assert 0 <= row["same"] <= DRAWS
    still = ask_json(f"{home}/api/consistency?ratio=0&first=0&count={DRAWS}")
    assert {row["same"] for row in still["models"]} == {DRAWS}


def test_the_jigsaw_moves_framed_cells_and_leaves_the_rest(home: str) -> None:
    def picture(address: str) -> Image.Image:
        status, body, headers = ask(home + address)
        assert (status, headers["Content-Type"]) == (200, "image/jpeg")
        return Image.open(BytesIO(body))

    plan = plans((8, 8), 0.3, "blockwise", 0)
    original, shuffled = picture("/jigsaw.jpg?ratio=0"), picture("/jigsaw.jpg?ratio=0.3&seed=0")
    assert original.size == shuffled.size
    side = original.width // 8

    def difference(cell: int) -> int:
        """Inside a cell, where neither its frame nor JPEG's blocks reach."""
        x, y = side * (cell % 8), side * (cell // 8)
        box = (x + 16, y + 16, x + side - 16, y + side - 16)
        pixels = zip(original.crop(box).tobytes(), shuffled.crop(box).tobytes(), strict=True)
        return max(abs(a - b) for a, b in pixels)

    moved = plan.permutation[0] != torch.arange(64)
    assert all(difference(cell) <= 8 for cell in range(64) if not moved[cell])
    assert sum(difference(cell) > 8 for cell in range(64) if moved[cell]) > moved.sum() / 2  # grass is like grass


def test_attacks_give_what_the_command_line_gives(home: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(photo(seed=1))
    name = send(home, path.read_bytes())
    run, command = run_attacks(home, picture=name, model=MODELS[0], defences=["none", "mjp:0.1"], seed=2)
    assert run["state"] == "done", run
    assert run["done"] == len(run["defences"]) * len(run["attacks"])
    words = command.split()
    attacks = words[words.index("--attacks") + 1 : words.index("--seed")]
    assert words[words.index("--defences") + 1 : words.index("--attacks")] == ["none", "mjp:0.1"]
    direct = audit_pictures(MODELS[0], open_square(path, 32), attacks=["direct"], seed=2)[1]
    findings = [finding for finding in run["findings"] if finding["defence"] == "none"]
    assert [finding["attack"] for finding in findings[:-1]] == ["guess", *attacks]
    assert findings[1]["scores"]["a"]["psnr"] == pytest.approx(direct.scores["a"][0].psnr, abs=1e-3)
    assert findings[1]["scores"]["a"]["exact"] == 1
    assert findings[-1]["verdict"] == "exposed"
    assert findings[-1]["sentence"].startswith("exposed: direct")
    original = (open_square(path, 32)[0] * 255).round().byte().permute(1, 2, 0)
    for address in (run["picture"], findings[1]["picture"]):  # what it is compared with, and what was rebuilt
        enlarged = Image.open(BytesIO(ask(home + address)[1]))
        pixels = bytearray(enlarged.resize((32, 32), Image.Resampling.NEAREST).tobytes())
        assert torch.equal(torch.frombuffer(pixels, dtype=torch.uint8), original.flatten())


def test_attacks_are_those_made_for_the_update() -> None:
    table = find_model(MODELS[1])
    rotary = as_subject(MJP(timm.create_model("vit_small_patch16_rope_224", depth=1), mjp.variant("A")))
    has_lattices = find_spec("fpylll") is not None
    one = ("direct", "span", "subspace", "activations", *(["lattice"] if has_lattices else []))
    several = ("direct", *(["batch"] if has_lattices else []))
    assert choose_attacks(table, ["none", "mjp:0.27"], 1) == one
    assert choose_attacks(table, ["mjp:0.27"], 3) == (*one, "rounds")
    assert choose_attacks(table, ["batch:4", "mjp:0.27+batch:4"], 3) == several
    assert set(choose_attacks(table, ["none", "batch:2"], 1)) == {*one, *several}
    assert choose_attacks(rotary, ["none"], 1) == ("hull",)


def test_the_command_names_the_weights_of_timm() -> None:
    question = Question("timm:vit_tiny", np.zeros((3, 8, 8), np.uint8), ("none",), ("direct",), 1, 0)
    assert question.command == (
        "mjp attack photo.jpg --model timm:vit_tiny --defences none --attacks direct --seed 0 --pretrained"
    )


def test_a_folder_without_results_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"), running(MODELS[:1], results=(tmp_path / "no",)):
        pass


def test_a_run_can_be_cancelled_and_the_next_one_works(home: str) -> None:
    asked = ask_json(f"{home}/api/leak", b'{"defences": ["mjp:0.27", "mjp:0.5"]}', status=202)
    ask_json(f"{home}/api/jobs/{asked['job']}", method="DELETE")
    assert ask_json(f"{home}/api/jobs/{asked['job']}")["state"] == "cancelled"
    run, _ = run_attacks(home, defences=["withheld-pe+bf16"], model=MODELS[0])
    assert run["state"] == "done"


def test_uploads_are_bounded_and_the_oldest_goes(home: str) -> None:
    first = send(home, photo(side=8))
    for number in range(MAX_PICTURES):
        send(home, photo(side=8, seed=number))
    status, body, _ = ask(f"{home}/picture/{first}")
    assert status == 400
    assert b"choose it again" in body


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "cannot be read as a picture"), (b"<svg/>", "cannot be read"), (photo()[:200], "cannot be read")],
)
def test_a_broken_upload_is_refused_with_a_sentence(home: str, content: bytes, words: str) -> None:
    assert words in ask_json(f"{home}/api/pictures", content, method="POST", status=400)["error"]


def test_too_much_is_refused(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MJP_MAX_PIXELS", "1000")
    error = ask_json(f"{home}/api/pictures", photo(), status=400)["error"]
    assert "limit of 0.001 million pixels" in error
    monkeypatch.setattr("mjp.app.api.MAX_BYTES", 100)
    assert "MB were sent" in ask_json(f"{home}/api/pictures", photo(), status=400)["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no", "must be JSON"),
        (b"[]", "a JSON object"),
        (b'{"defences": []}', "choose one to"),
        (b'{"defences": [1]}', "a defence is a text"),
        (b'{"defences": ["unheard-of"]}', "unheard-of"),
        (b'{"defences": ["mjp:0.27+batch:4096"]}', "batches of at most 8"),
        (b'{"rounds": 99}', "rounds must be"),
        (b'{"batch": 0}', "batch must be"),
        (b'{"model": "../../etc/passwd"}', "has no model"),
        (b'{"picture": "../x"}', "not in memory"),
        (b'{"seed": -1}', "seed must be"),
        (b"[" * 9000, "must be JSON"),
    ],
)
def test_a_bad_question_is_refused_with_a_sentence(home: str, body: bytes, words: str) -> None:
    assert words in ask_json(f"{home}/api/leak", body, status=400)["error"]


@pytest.mark.parametrize(
    "address", ["/?ratio=2", "/?ratio=x", "/?sampler=y", "/?seed=-1", "/?picture=zz", "/?ratio=nan"]
)
def test_a_bad_address_is_told_on_the_page(home: str, address: str) -> None:
    status, body, _ = ask(home + address)
    assert status == 400
    assert b'role="alert"' in body


def test_other_sites_cannot_use_the_page(home: str) -> None:
    port = home.rpartition(":")[2]
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"}):
        assert ask(f"{home}/api/pictures", photo(), **headers)[0] == 403
        assert ask(f"{home}/api/jobs/x", method="DELETE", **headers)[0] == 403
    assert ask(f"{home}/api/pictures", photo(), Origin=home)[0] == 201
    assert ask(f"{home}/", Host=f"evil.example:{port}")[0] == 421


def test_what_is_not_there_is_not_found(home: str) -> None:
    for address in ("/nothing", "/assets/app.py", "/assets/..%2fserve.py", "/api/nothing"):
        assert ask(home + address)[0] == 404
    assert ask(f"{home}/api/jobs/x")[0] == 400
    assert ask(f"{home}/leak", b"x")[0] == 405
