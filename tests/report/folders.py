"""Results folders as mjp eval, study and aladin write them, made by hand, and a reader of pages."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from PIL import Image

VERSIONS = {"mjp": "0.1.0", "torch": "2.13.0", "timm": "1.0.30"}
RATIOS = (0.03, 0.27, 0.5, 1.0)
CORRUPTIONS = {
    "source": "generated",
    "missing": [],
    "errors": {"fog": [0.5, 0.7], "snow": [0.5, None]},
    "means": {"fog": [0.6, 0.55, 0.65]},
    "mce": None,
    "mce_unnormalised": [0.6, 0.5, 0.7],
}


def point(ratio: float, unknown: bool) -> dict[str, Any]:
    found = {"top1": [0.3, 0.28, 0.32], "consistency": [0.9, 0.88, 0.92]}
    if unknown:
        found["consistency"] = [0.971, 0.9604, 0.9816]
    return {"ratio": ratio, "unknown": unknown, **found, "diff_norm": [2, 1.9, 2.1], "diff_relative": [0.2, 0.19, 0.21]}


def evaluated(*, unknown: bool = True, **more: Any) -> dict[str, Any]:
    """One model of results.json."""
    views = (True, False) if unknown else (False,)
    points = [point(ratio, view) for ratio in RATIOS for view in views]
    share = {"top1": [0.3874, 0.3291, 0.4402], "top5": [0.8, 0.75, 0.85]}
    return {**share, "points": points, "pictures": 1234, "draws": 2, "seed": 7, **more}


def picture(path: Path) -> None:
    Image.new("RGB", (1200, 400), (200, 220, 240)).save(path)


def write_eval(folder: Path, models: dict[str, Any] | None = None, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    models = {"plain": evaluated(unknown=False), "mjp": evaluated()} if models is None else models
    settings = {"models": list(models), "data": "embedded", "draws": 2, "seed": 7}
    facts = {"kind": "eval", "settings": settings, "versions": VERSIONS, "data": "embedded", "models": models}
    (folder / "results.json").write_text(json.dumps({**facts, **changes}))
    picture(folder / "sweep.png")
    return folder


def write_study(folder: Path, models: tuple[str, ...] = ("plain", "mjp"), **changes: Any) -> Path:
    folder.mkdir(parents=True)
    figures = {"index_mae": 10.487, "index_std": 0.867, "place_mae": 1.498, "place_std": 0.231}
    model = {**figures, "folds": 5, "seed": 3, "grid": [8, 8], "variance": [0.2, 0.1, 0.06], "umap": False}
    settings = {"models": list(models), "folds": 5, "seed": 3}
    facts = {"kind": "study", "settings": settings, "versions": VERSIONS, "attention": list(models)}
    (folder / "results.json").write_text(json.dumps({**facts, "models": dict.fromkeys(models, model), **changes}))
    for number in range(len(models)):
        picture(folder / f"positions-{number + 1}.png")
    picture(folder / "attention.png")
    return folder


def write_segment(folder: Path, name: str = "out/swin-paper", **changes: Any) -> Path:
    folder.mkdir(parents=True)
    classes = {
        "sky": {"iou": 0.8123, "recall": 0.9, "pixels": 1000},
        "road": {"iou": 0.7001, "recall": 0.8, "pixels": 2000},
        "bicyclist": {"iou": None, "recall": None, "pixels": 0},
    }
    figures = {"miou": [0.5312, 0.5101, 0.5523], "macc": [0.6412, 0.62, 0.66], "accuracy": [0.8, 0.79, 0.81]}
    about = {"pictures": 233, "steps": 675, "seed": 5}
    backbone = {"architecture": "swin_tiny_patch4_window7_224", "arguments": {}, "weights": name, "fingerprint": "0"}
    model = {**figures, **about, "backbone": {**backbone, "mjp": {}}, "classes": classes}
    settings = {"data": "camvid", "checkpoint": name, "seed": 5}
    body = {"data": "camvid", "layout": "camvid", "split": "test", "models": {name: model}}
    results = {"schema": 1, "kind": "segment", "settings": settings, "versions": VERSIONS, **body}
    (folder / "results.json").write_text(json.dumps({**results, **changes}))
    picture(folder / "predictions.png")
    return folder


def between(mean: float, spread: float = 2.0) -> dict[str, float]:
    return {"mean": mean, "low": mean - spread, "high": mean + spread}


def scorers(rsum: float) -> dict[str, Any]:
    """The three scorers of one model; `rsum` is alignment's."""
    found: dict[str, Any] = {}
    for name, share in (("alignment", 1.0), ("vector", 0.95), ("two-stage", 1.02)):
        each = {"i2t": [11.9, 33.6, 46.0], "t2i": [9.8, 27.8, 38.4], "rsum": share * rsum}
        found[name] = {**each, "rsum_interval": between(share * rsum), "difference": between((share - 1) * rsum)}
        found[name]["retention_percent"] = 100 * share
    found["vector"]["overlap10"] = {"i2t": 51.2, "t2i": 64.4}
    found["two-stage"]["k"] = 20
    return found


def retrieval(rsum: float, seed: int | None = None, **more: Any) -> dict[str, Any]:
    """One model of mjp aladin eval."""
    judged = {"rouge_l": {"i2t": 61.0, "t2i": 62.0}, "crowd": {"i2t": None, "t2i": 63.5}}
    training = {"phase": "distill", "objective": "distill+infonce", "seed": seed, "family": "f"}
    return {
        **{"pictures": 1000, "captions": 5000, "training": None if seed is None else training},
        **{"scorers": scorers(rsum), "ndcg25": {"alignment": judged, "vector": judged}, **more},
    }


def masking(*, opened: bool = True) -> dict[str, Any]:
    point = {name: {"rsum": between(30.0), "difference": between(-7.5)} for name in ("alignment", "vector")}
    clean = {name: {"rsum": between(37.5), "difference": between(0.0, 0.0)} for name in ("alignment", "vector")}
    points = [{"ratio": ratio, "unknown": unknown, **point} for ratio in (0.27, 1.0) for unknown in (True, False)]
    said = "the curve means something" if opened else "the curve means nothing"
    return {"draws": 2, "seed": 0, "clean": clean, "points": points, "headline": [f"alignment: {said}", "vector: …"]}


def write_retrieval(folder: Path, models: dict[str, Any] | None = None, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    models = {"out/d-0": retrieval(160.0, 0), "out/d-1": retrieval(170.0, 1)} if models is None else models
    settings = {
        "models": list(models),
        "data": "/data/flickr8k",
        "split": "test",
        "choose_on": "dev",
        "rerank": [5, 20],
    }
    facts = {"kind": "aladin eval", "settings": {**settings, "seed": 4}, "versions": VERSIONS, "models": models}
    (folder / "results.json").write_text(json.dumps({**facts, "seeds": [], **changes}))
    picture(folder / "masking.png")
    return folder


def write_bench(folder: Path, name: str = "aladin-flickr8k") -> Path:
    folder.mkdir(parents=True)
    sizes = []
    for pictures in (1_000, 100_000):
        times = {part: {"p50": 1.5, "p95": 2.5} for part in ("encode", "search", "rerank", "exhaustive")}
        if pictures == 1_000:
            times["exhaustive_in_memory"] = {"p50": 18.0, "p95": 19.0}
        size = {"index_bytes": 13_000 * pictures, "bytes_per_picture": 13_000.0}
        sizes.append({"pictures": pictures, **size, "milliseconds": times})
    model = {"headline": ["Scoring alone: 12 times as long."], "threads": 2, "rerank": 20, "patches": 49}
    models = {name: {**model, "queries": ["dog", "snow"], "sizes": sizes}}
    settings = {"model": name, "sizes": [1000, 100000], "json": False}
    facts = {"kind": "aladin bench", "settings": settings, "versions": VERSIONS, "models": models}
    (folder / "results.json").write_text(json.dumps(facts))
    picture(folder / "latency.png")
    return folder


class Page(HTMLParser):
    """Tags with their attributes in the order of the page, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.style = ""
        self.inside_style = False
        self.feed(source)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.inside_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self.inside_style = False

    def handle_data(self, data: str) -> None:
        if self.inside_style:
            self.style += data
        else:
            self.text += data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag == name]
