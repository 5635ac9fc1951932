"""Recall, NDCG and retention of retrieval models: alignment head, vector, and both in two stages.

Example: mjp aladin eval out/aladin-distill out/aladin-infonce --data FLICKR8K

Of runs that differ in nothing but their seed the mean and the standard deviation are given too; of the first model also
how long a search takes, part by part, and the bytes of an index (mjp aladin bench gives this alone). With --mask-ratios
also what it costs to hide positions, for models on a ViT, and whether that says anything: see docs/aladin.md. A model
of --phase align has no vector yet, only alignment is measured.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from mjp.aladin.data.captions import Captioned
    from mjp.aladin.evaluate.relevance import Judgement
    from mjp.aladin.model.aladin import Aladin


@dataclass
class Options:
    models: tyro.conf.Positional[tuple[str, ...]]
    """Folders of models or of runs of mjp aladin train, or aladin-flickr8k."""
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
    latency: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Numbers of pictures in the galleries for the time of a search; --latency without a number leaves it out."""
    mask_ratios: tuple[float, ...] = ()
    """Also recall with the positions of these shares of patches hidden, for models on a ViT."""
    draws: int = 1
    """Jigsaws per picture and mask ratio."""
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
    """Folder for results.json, latency.png and masking.png."""


def run(options: Options) -> None:
    from mjp.aladin.data.captions import in_split, load_captions
    from mjp.aladin.evaluate.charts import draw_latency, draw_masking
    from mjp.aladin.evaluate.masking import vit_of
    from mjp.aladin.evaluate.relevance import read_judgements
    from mjp.aladin.evaluate.tables import latency_table, mask_table, scorer_table, seed_table
    from mjp.aladin.model.shipped import find_aladin
    from mjp.aladin.training.seeds import over_seeds
    from mjp.common.device import pick_device
    from mjp.common.files import check_folder
    from mjp.report.runs import describe

    _check(options)
    check_folder(options.out)
    device = pick_device(options.device)
    models = {name: find_aladin(name, searchable=bool(options.mask_ratios))[0].to(device) for name in options.models}
    for model in models.values() if options.mask_ratios else ():
        vit_of(model)  # before anything is computed
    data = load_captions(options.data, options.pictures)
    names = [options.split, *([options.choose_on] if len(options.rerank) > 1 else [])]
    splits = {name: in_split(data, name)[: options.limit] for name in names}
    folder = options.data if options.data.is_dir() else options.data.parent
    files = [path for path in (folder / "crowd.txt", folder / "experts.txt") if path.is_file()]
    judgements = {path.stem: read_judgements(path) for path in files}
    found: dict[str, Any] = {}
    for name, model in models.items():
        found[name] = _measured(name, model, splits, judgements, options)
        print(scorer_table(name, options.split, found[name]))
        if options.mask_ratios:
            print(mask_table(name, found[name]["masking"]))
    seeds = over_seeds(found)
    for family in seeds:
        print(seed_table(family))
    facts = {**describe("aladin eval", options), "models": found, "seeds": seeds}
    options.out.mkdir(parents=True, exist_ok=True)
    _write(facts, options.out)
    first = next((name for name, model in models.items() if model.matching_trained), None)
    if options.latency and first is not None:
        facts["latency"] = {first: _timed(models[first], found[first], options)}
        print(latency_table(facts["latency"][first]))
        draw_latency(facts["latency"][first], first, options.out / "latency.png")
        _write(facts, options.out)
        print(f"latency  {options.out / 'latency.png'}")
    if options.mask_ratios:
        draw_masking({name: each["masking"] for name, each in found.items()}, options.out / "masking.png")
        print(f"curves   {options.out / 'masking.png'}")
    print(f"figures  {options.out / 'results.json'}")


def _check(options: Options) -> None:
    from mjp.common.errors import InputError
    from mjp.common.validate import number, whole

    if not options.models:
        raise InputError("name at least one model: the folder of a model, or of a run of mjp aladin train")
    if not options.rerank or min(options.rerank) < 1:
        raise InputError("--rerank needs numbers of at least 1")
    if len(options.rerank) > 1 and options.choose_on == options.split:
        raise InputError("choose among --rerank on another split than the one to report on, or give one number")
    for size in options.latency:
        whole("--latency", size, least=1)
    for ratio in options.mask_ratios:
        number("--mask-ratios", ratio, least=0, most=1)
    if options.mask_ratios and not max(options.mask_ratios):
        raise InputError("--mask-ratios needs a ratio above 0; γ = 0 is always measured")
    whole("--draws", options.draws, least=1)
    whole("--workers", options.workers)
    whole("--max-unreadable", options.max_unreadable)
    for name in ("fold", "limit"):
        if getattr(options, name) is not None:
            whole(f"--{name}", getattr(options, name), least=1)


def _measured(
    name: str,
    model: "Aladin",
    splits: "dict[str, list[Captioned]]",
    judgements: "dict[str, list[Judgement]]",
    options: Options,
) -> dict[str, Any]:
    from mjp.aladin.data.corpus import Corpus
    from mjp.aladin.evaluate.masking import mask_curve
    from mjp.aladin.evaluate.scorers import choose_k, graded, measure, score_matrices
    from mjp.aladin.training.seeds import training_of

    settings: dict[str, Any] = {"workers": options.workers, "max_unreadable": options.max_unreadable}
    used = splits if model.matching_trained else {options.split: splits[options.split]}  # no K to choose
    corpora = {name: Corpus(model, items, options.cache, **settings) for name, items in used.items()}
    scores = {name: score_matrices(model, corpus) for name, corpus in corpora.items()}
    k = options.rerank[0]
    if options.choose_on in scores:
        k = choose_k(scores[options.choose_on], corpora[options.choose_on].owner, options.rerank)
    corpus, found = corpora[options.split], scores[options.split]
    facts = {
        **{"hash": model.hash, "pictures": len(corpus.items), "captions": len(corpus.texts)},
        "training": training_of(Path(name)),
        "scorers": measure(found, corpus, k, seed=options.seed, fold=options.fold),
        "ndcg25": graded(found, corpus, k, judgements),
    }
    if options.mask_ratios:
        facts["masking"] = mask_curve(model, corpus, options.mask_ratios, draws=options.draws, seed=options.seed)
    return facts


def _timed(model: "Aladin", found: dict[str, Any], options: Options) -> dict[str, Any]:
    from mjp.aladin.evaluate.latency import measure_latency

    return measure_latency(model, options.latency, rerank=found["scorers"]["two-stage"]["k"], seed=options.seed)


def _write(facts: dict[str, Any], folder: Path) -> None:
    from mjp.common.files import write_atomically

    write_atomically(folder / "results.json", lambda path: path.write_text(json.dumps(facts, indent=2) + "\n"))
