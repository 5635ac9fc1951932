"""`mjp aladin eval` from end to end: measure every model, print tables, write results.json and the charts."""

from pathlib import Path
from typing import Any

from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.data.corpus import Corpus
from mjp.aladin.evaluate.charts import draw_latency, draw_masking
from mjp.aladin.evaluate.config import EvalConfig
from mjp.aladin.evaluate.labels import label_data, measure_labels
from mjp.aladin.evaluate.latency import measure_latency
from mjp.aladin.evaluate.masking import mask_curve, vit_of
from mjp.aladin.evaluate.relevance import Judgement, read_judgements
from mjp.aladin.evaluate.scorers import TWO_STAGE, choose_k, graded, measure, score_matrices
from mjp.aladin.evaluate.seeds import over_seeds, training_of
from mjp.aladin.evaluate.tables import backbone_line, label_table, latency_table, mask_table, scorer_table, seed_table
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.shipped import find_aladin
from mjp.common.device import pick_device
from mjp.common.files import check_folder
from mjp.common.results import Results, write_results
from mjp.pictures.sets import Folder

KIND = "aladin eval"
USUAL_K = 20  # candidates that a search re-ranks unless it is told otherwise
Splits = dict[str, list[Captioned]]
Judgements = dict[str, list[Judgement]]


def evaluate_models(config: EvalConfig) -> Results:
    """Everything about all models. Recall is written before latency is measured, which takes minutes."""
    config.check()
    check_folder(config.out)
    models = _load_models(config)
    splits, judgements = _load_splits(config), _load_judgements(config.data)
    labelled = None if config.labels is None else label_data(config.labels)
    measured: dict[str, Any] = {}
    for name, model in models.items():
        print(backbone_line(name, model.config.backbone, trained=model.backbone_trained))
        measured[name] = evaluate_model(name, model, splits, judgements, config)
        if config.data is not None:
            print(scorer_table(name, config.split, measured[name]))
        if config.mask_ratios:
            print(mask_table(name, measured[name]["masking"]))
        if labelled is not None:
            measured[name]["labels"] = evaluate_labels(model, labelled, measured[name], config)
            print(label_table(name, measured[name]["labels"]))
    body: dict[str, Any] = {"models": measured, "seeds": over_seeds(measured)}
    for family in body["seeds"]:
        print(seed_table(family))
    results = write_results(config.out, KIND, config, body)
    if config.mask_ratios:
        draw_masking({name: entry["masking"] for name, entry in measured.items()}, config.out / "masking.png")
        print(f"curves   {config.out / 'masking.png'}")
    searchable = next((name for name, model in models.items() if model.matching_trained), None)
    if config.latency and searchable is not None:
        rerank = _candidates(measured[searchable], config)
        latency = measure_latency(models[searchable], config.latency, rerank=rerank, seed=config.seed)
        print(latency_table(latency))
        draw_latency(latency, searchable, config.out / "latency.png")
        results = write_results(config.out, KIND, config, {**body, "latency": {searchable: latency}})
        print(f"latency  {config.out / 'latency.png'}")
    print(f"figures  {config.out / 'results.json'}")
    return results


def evaluate_model(
    name: str, model: Aladin, splits: Splits, judgements: Judgements, config: EvalConfig
) -> dict[str, Any]:
    """Recall, NDCG and, if asked for, the cost of hidden positions; without captions only what the model is."""
    subject = {"hash": model.hash, "training": training_of(Path(name)), "backbone_trained": model.backbone_trained}
    if not splits:
        return subject
    settings: dict[str, Any] = {"workers": config.workers, "max_unreadable": config.max_unreadable}
    both = model.matching_trained and model.alignment_trained
    used = splits if both else {config.split: splits[config.split]}  # without two stages, no K
    corpora = {split: Corpus(model, items, config.cache, **settings) for split, items in used.items()}
    scores = {split: score_matrices(model, corpus) for split, corpus in corpora.items()}
    k = config.rerank[0]
    if both and config.choose_on in scores:
        k = choose_k(scores[config.choose_on], corpora[config.choose_on].owner, config.rerank)
    corpus, matrices = corpora[config.split], scores[config.split]
    measured = {
        **subject,
        "pictures": len(corpus.items),
        "captions": len(corpus.texts),
        "scorers": measure(matrices, corpus, k, seed=config.seed, fold=config.fold),
        "ndcg25": graded(matrices, corpus, k, judgements),
    }
    if config.mask_ratios:
        measured["masking"] = mask_curve(model, corpus, config.mask_ratios, draws=config.draws, seed=config.seed)
    return measured


def evaluate_labels(
    model: Aladin, labelled: tuple[Folder, list[Captioned]], measured: dict[str, Any], config: EvalConfig
) -> dict[str, Any]:
    """What names and kinds of classes find; K as chosen on captions, if there are any."""
    pictures, items = labelled
    settings: dict[str, Any] = {"workers": config.workers, "max_unreadable": config.max_unreadable}
    corpus = Corpus(model, items, config.cache, **settings)
    return measure_labels(model, corpus, pictures, _candidates(measured, config), seed=config.seed)


def _candidates(measured: dict[str, Any], config: EvalConfig) -> int:
    """How many candidates are re-ranked: as chosen on captions, else the usual number if it is allowed."""
    if TWO_STAGE in measured.get("scorers", {}):
        return int(measured["scorers"][TWO_STAGE]["k"])
    return USUAL_K if USUAL_K in config.rerank else config.rerank[0]


def _load_models(config: EvalConfig) -> dict[str, Aladin]:
    device = pick_device(config.device)
    models = {name: find_aladin(name, searchable=bool(config.mask_ratios)).to(device) for name in config.models}
    for model in models.values() if config.mask_ratios else ():
        vit_of(model)  # refused before anything is computed
    return models


def _load_splits(config: EvalConfig) -> Splits:
    if config.data is None:
        return {}
    data = load_captions(config.data, config.pictures)
    names = [config.split, *([config.choose_on] if len(config.rerank) > 1 else [])]
    return {name: in_split(data, name)[: config.limit] for name in names}


def _load_judgements(data: Path | None) -> Judgements:
    """Flickr8k's human judgements, where they are beside the captions."""
    if data is None:
        return {}
    folder = data if data.is_dir() else data.parent
    files = [path for path in (folder / "crowd.txt", folder / "experts.txt") if path.is_file()]
    return {path.stem: read_judgements(path) for path in files}
