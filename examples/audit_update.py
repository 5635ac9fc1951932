"""Audit an update before it leaves: python examples/audit_update.py [FOLDER]

A client computes the gradient of one picture with a public model, as any federated client does, and asks what a server
could rebuild from it. Writes audit.png: the picture beside the best reconstruction.
"""

import sys
from pathlib import Path

import mjp.privacy

# isort: split
import torch
from torch.nn.functional import cross_entropy

from mjp.pictures.sets import embedded
from mjp.pictures.sheet import contact_sheet
from mjp.privacy import Finding


def client_gradient(model: mjp.MJP, picture: torch.Tensor, label: int) -> dict[str, torch.Tensor]:
    """What a client sends: gradients by parameter name. `picture` is (3, 32, 32) in [0, 1]."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    plain = model.unwrap()
    loss = cross_entropy(plain(((picture - mean) / std).unsqueeze(0)), torch.tensor([label]))
    gradients = torch.autograd.grad(loss, list(plain.parameters()))
    return dict(zip((name for name, _ in plain.named_parameters()), gradients, strict=True))


def main(folder: Path = Path("out/example-audit")) -> list[Finding]:
    pictures = embedded("val")
    picture = torch.from_numpy(pictures.pixels[0].copy()).permute(2, 0, 1) / 255
    model = mjp.load("mini-cifar10-plain")
    update = client_gradient(model, picture, pictures.labels[0])

    before = model.unwrap().state_dict()  # the weights that the server sent
    findings = mjp.privacy.audit_update(before, update, {"size": (32, 32)}, model, attacks=["direct", "span"])

    folder.mkdir(parents=True, exist_ok=True)
    tiles: list[torch.Tensor | str] = [picture]
    for finding in findings:
        print(f"{finding.attack}: {finding.verdict.sentence if finding.verdict else finding.refused}")
        tiles.append(str(finding.refused) if finding.pictures is None else finding.pictures[0].float())
    names = ["picture", *(finding.attack for finding in findings)]
    contact_sheet({"": tiles}, names, title="What the server sees", least=160).save(folder / "audit.png")
    print(f"sheet: {folder / 'audit.png'}")
    return findings


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
