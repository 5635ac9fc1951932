"""Recall, NDCG and retention of retrieval models: alignment head, vector, and both in two stages.

Example: mjp aladin eval out/aladin-distill out/aladin-infonce --data FLICKR8K
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from mjp.aladin.data import Captioned
    from mjp.aladin.model import Aladin


@dataclass
class Options:
    models: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of models, or of runs of mjp aladin train."""
    data: Path
    """Folder with captions.json and images/, or a COCO or Karpathy json file."""
    pictures: Path | None = None
    """Folder of the pictures, if they do not lie beside the json file."""
    split: str = "test"
    """Split to report on."""
    choose_on: str = "dev"
    """Split on which the number of re-ranked candidates is chosen."""
    rerank: tuple[int, ...] = (5, 10, 20, 50)
    """Numbers of re-ranked candidates to choose from; if it is only one, nothing is chosen."""
    fold: int | None = None
    """Also the mean over galleries of this many pictures (1000 for COCO's 1K figures)."""
    limit: int | None = None
    """Look at the first pictures of each split only."""
    cache: Path = Path("out/aladin-features")
    """Folder for tokens on disk."""
    max_unreadable: int = 0
    """How many unreadable pictures to put up with. Each is named and left out."""
    seed: int = 0
    """Seed of the bootstrap."""
    workers: int = 1
    """Processes that read pictures."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    out: Path = Path("out/aladin-eval")
    """Folder for results.json."""


def run(options: Options) -> None:
    from mjp.aladin.data import in_split, load_captions
    from mjp.aladin.model import Aladin
    from mjp.errors import InputError
    from mjp.files import write_atomically
    from mjp.training.distributed import pick_device

    if not options.models:
        raise InputError("name at least one model: the folder of a model, or of a run of mjp aladin train")
    if not options.rerank or min(options.rerank) < 1:
        raise InputError("--rerank needs numbers of at least 1")
    if len(options.rerank) > 1 and options.choose_on == options.split:
        raise InputError("choose among --rerank on another split than the one to report on, or give one number")
    device = pick_device(options.device)
    models = {str(path): Aladin.load(path).to(device) for path in options.models}
    data = load_captions(options.data, options.pictures)
    names = [options.split, *([options.choose_on] if len(options.rerank) > 1 else [])]
    splits = {name: in_split(data, name)[: options.limit] for name in names}
    facts: dict[str, Any] = {"kind": "aladin-eval", "data": str(options.data), "split": options.split}
    facts |= {"seed": options.seed, "models": {}}
    for name, model in models.items():
        facts["models"][name] = _measured(model, splits, options)
        print(_table(name, options.split, facts["models"][name]))
    options.out.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "results.json", lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))
    print(f"figures  {options.out / 'results.json'}")


def _measured(model: "Aladin", splits: "dict[str, list[Captioned]]", options: Options) -> dict[str, Any]:
    from mjp.aladin.corpus import Corpus
    from mjp.aladin.evaluate import choose_k, graded, measure, score_matrices

    settings: dict[str, Any] = {"workers": options.workers, "max_unreadable": options.max_unreadable}
    corpora = {name: Corpus(model, items, options.cache, **settings) for name, items in splits.items()}
    scores = {name: score_matrices(model, corpus) for name, corpus in corpora.items()}
    k = options.rerank[0]
    if options.choose_on in scores:
        k = choose_k(scores[options.choose_on], corpora[options.choose_on].owner, options.rerank)
    corpus, found = corpora[options.split], scores[options.split]
    folder = options.data if options.data.is_dir() else options.data.parent
    judgements = [path for path in (folder / "crowd.txt", folder / "experts.txt") if path.is_file()]
    return {
        **{"hash": model.hash, "pictures": len(corpus.items), "captions": len(corpus.texts)},
        "scorers": measure(found, corpus, k, seed=options.seed, fold=options.fold),
        "ndcg25": graded(found, corpus, judgements),
    }


def _table(model: str, split: str, facts: dict[str, Any]) -> str:
    """What a person reads."""
    lines = [
        f"\n{model} on {split}: {facts['pictures']} pictures, {facts['captions']} captions",
        f"{'':<16}{'i2t R@1/5/10':<18}{'t2i R@1/5/10':<18}{'median':<12}{'rsum [95 %]':<24}{'of alignment':<14}",
    ]
    for name, each in facts["scorers"].items():
        label = f"{name}, K={each['k']}" if "k" in each else name
        i2t, t2i = ("/".join(f"{value:.1f}" for value in each[way]) for way in ("i2t", "t2i"))
        interval = each["rsum_interval"]
        spread = f"{each['rsum']:.1f} [{interval['low']:.1f}, {interval['high']:.1f}]"
        middle = f"{each['i2t_median']:g}/{each['t2i_median']:g}"
        lines.append(f"{label:<16}{i2t:<18}{t2i:<18}{middle:<12}{spread:<24}{each['retention_percent']:.1f} %")
    lines.append(f"\nNDCG@25, %{'':<6}" + "".join(f"{kind:<18}" for kind in next(iter(facts["ndcg25"].values()))))
    for name, kinds in facts["ndcg25"].items():
        lines.append(f"{name:<16}" + "".join(_pair(v).ljust(18) for v in kinds.values()))
    same = facts["scorers"]["vector"]["overlap10"]
    lines.append(f"\ntop-10 overlap of vector with alignment: i2t {same['i2t']:.1f} %, t2i {same['t2i']:.1f} %")
    return "\n".join(lines) + "\n"


def _pair(values: dict[str, Any]) -> str:
    """Both directions; a dash where nobody judged."""
    return "/".join("–" if values[way] is None else f"{values[way]:.1f}" for way in ("i2t", "t2i"))
