"""Make the pictures of the README and the documentation, from free pictures of scikit-image:

    python tools/draw_readme.py docs/pictures

jigsaw.png  mjp jigsaw --picture CHELSEA
attack.png  mjp attack CHELSEA --model timm:deit_small_patch16_224 --defences none mjp:0.03 mjp:0.27
sweep.png   mjp eval mini-cifar10-plain mini-cifar10-mjp
search.png  mjp aladin search INDEX "a cat" of twelve pictures
federated.png  mjp federate --model timm:deit_small_patch16_224 --photograph ASTRONAUT --defences none mjp:0.03 mjp:0.27
               --attacks direct subspace --clients 2 --rounds 1 --accuracy 0 --lr 0.1

Results are reduced to 256 colours to keep the repository small. The attack takes minutes.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import mjp  # noqa: F401  before torchvision

# isort: split
import numpy as np
from PIL import Image
from skimage import data

from mjp.cli.main import main

# all in the public domain or CC0
ALBUM = ("chelsea", "astronaut", "coffee", "rocket", "camera", "hubble_deep_field", "retina", "moon", "grass", "brick")
WIDTH = 1400


def draw(target: Path) -> None:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        album = home / "album"
        album.mkdir()
        for name in (*ALBUM, "gravel", "horse"):
            pixels = getattr(data, name)()
            Image.fromarray((pixels * 255).astype(np.uint8) if pixels.dtype == bool else pixels).save(
                album / f"{name}.png"
            )
        cat = str(album / "chelsea.png")
        defences = ["--defences", "none", "mjp:0.03", "mjp:0.27", "--attacks", "direct", "subspace"]
        federation = ["--model", "timm:deit_small_patch16_224", *defences, "--clients", "2", "--rounds", "1"]
        federation += ["--accuracy", "0", "--lr", "0.1"]
        commands = {
            "jigsaw": (["jigsaw", "--picture", cat], "jigsaw.png"),
            "sweep": (["eval", "mini-cifar10-plain", "mini-cifar10-mjp"], "sweep.png"),
            "attack": (["attack", cat, "--model", "timm:deit_small_patch16_224", *defences], "attack.png"),
            "federated": (["federate", "--photograph", str(album / "astronaut.png"), *federation], "leaks.png"),
            "search": (["aladin", "search", str(home / "index"), "a cat", "-k", "4"], "sheet.png"),
        }
        assert main(["aladin", "index", str(album), "-o", str(home / "index")]) == 0
        for name, (arguments, picture) in commands.items():
            assert main([*arguments, "--out", str(home / name)]) == 0
            _reduce(home / name / picture, target / f"{name}.png")


def _reduce(source: Path, target: Path) -> None:
    with Image.open(source) as file:
        picture = file.convert("RGB")
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(256).save(target, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
