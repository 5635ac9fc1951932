"""Put trained models into the package, with cards that say how they were trained and what they reach.

    mjp train --recipe mini_cifar10 --data CIFAR10 --preset plain --out RUN1
    mjp train --recipe mini_cifar10 --data CIFAR10 --out RUN2
    python tools/ship_models.py RUN1 mini-cifar10-plain RUN2 mini-cifar10-mjp

CIFAR10 holds train/CLASS/* (50,000 pictures) and val/CLASS/* (10,000). The accuracy on the card is the last line of the
run's metrics.jsonl.
"""

import json
import shutil
import sys
from pathlib import Path

import yaml

TARGET = Path(__file__).parent.parent / "src" / "mjp" / "shipped"
CARD = """---
library_name: mjp
tags: [image-classification, vision-transformer, masked-jigsaw-puzzle]
---

# {name}

A small ViT ({grid}, {width} dimensions, {depth} blocks), trained {how} on the 50,000 training pictures of CIFAR-10.

**top-1 {top1:.2f} %, top-5 {top5:.2f} %** on the {pictures:,} test pictures, after {epochs} epochs, seed {seed}: one
run, no spread over seeds was measured. Its twin ({twin}) differs in the method alone: same recipe, seed, data, length.

```python
import mjp

model = mjp.load("{name}")  # model(images) gives logits; images (B, 3, 32, 32), normalised as for ImageNet
```

Made by `mjp train --recipe mini_cifar10 --data DIR --preset {preset}`. For examples, evaluations and privacy audits
without a download; as a classifier it is a toy, far below what a larger model reaches on CIFAR-10.
"""


def main(pairs: list[tuple[Path, str]]) -> None:
    for run, name in pairs:
        config = yaml.safe_load((run / "config.yaml").read_text())
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        last = [line for line in lines if line["kind"] == "epoch"][-1]
        if last["epoch"] != config["epochs"]:
            sys.exit(f"{run} has not finished: epoch {last['epoch']} of {config['epochs']}")
        folder = TARGET / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(run / "model" / file, folder / file)
        facts = dict(part.split("=") for part in config["model_kwargs"])
        card = CARD.format(
            name=name,
            grid="8×8 patches of 4 pixels",
            width=facts["embed_dim"],
            depth=facts["depth"],
            how="plainly" if config["preset"] == "plain" else f"with MJP (γ = {config['mjp']['ratio']})",
            top1=last["val_top1"],
            top5=last["val_top5"],
            pictures=int(last["val_pictures"]),
            epochs=config["epochs"],
            seed=config["seed"],
            preset=config["preset"],
            twin=", ".join(other for _, other in pairs if other != name),
        )
        (folder / "README.md").write_text(card)
        print(f"{name}: top-1 {last['val_top1']:.2f} %")


if __name__ == "__main__":
    given = sys.argv[1:]
    if len(given) < 2 or len(given) % 2:
        sys.exit(__doc__)
    main([(Path(given[k]), given[k + 1]) for k in range(0, len(given), 2)])
