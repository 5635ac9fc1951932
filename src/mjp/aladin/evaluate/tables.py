"""The tables that `mjp aladin eval` and `mjp aladin bench` print; pure functions of what they write."""

from typing import Any

LABEL_QUERIES = {"name": "class name, “a photo of a CLASS”", "kind": "everyday word for several classes, “a dog”"}
HEAD = f"{'':<18}{'i2t R@1/5/10':<18}{'t2i R@1/5/10':<18}"


def backbone_line(model: str, backbone: str, *, trained: bool) -> str:
    return f"\n{model}: backbone {backbone}, {'trained with the model' if trained else 'frozen'}"


def scorer_table(model: str, split: str, measured: dict[str, Any]) -> str:
    """All scorers of one model."""
    scorers = measured["scorers"]
    lines = [
        f"\n{model} on {split}: {measured['pictures']} pictures, {measured['captions']} captions",
        f"{HEAD}{'median':<12}{'rsum [95 %]':<24}of alignment",
    ]
    for name, entry in scorers.items():
        label = f"{name}, K={entry['k']}" if "k" in entry else name
        retention = entry["retention_percent"]
        share = "–" if retention is None else f"{retention:.1f} %"
        lines.append(f"{_recalls(label, entry)}{_between(entry['rsum_interval']):<24}{share}")
    folded = _folds(scorers)
    if folded:
        lines.append(f"\nmean over galleries of {next(iter(folded.values()))['size']} pictures")
    lines += [f"{_recalls(name, entry)}{entry['rsum']:.1f}" for name, entry in folded.items()]
    lines.append(f"\n{'NDCG@25, %':<18}" + "".join(f"{kind:<18}" for kind in next(iter(measured["ndcg25"].values()))))
    for name, kinds in measured["ndcg25"].items():
        lines.append(f"{name:<18}" + "".join(_pair(v).ljust(18) for v in kinds.values()))
    return "\n".join([*lines, _overlap(scorers)]) + "\n"


def seed_table(family: dict[str, Any]) -> str:
    """The mean over several seeds."""
    lines = [
        f"\n{family['name']}: mean ± standard deviation of {len(family['seeds'])} seeds "
        f"({', '.join(map(str, family['seeds']))})",
        *([f"{HEAD}{'rsum':<18}of alignment"] if family["scorers"] else []),
    ]
    for name, entry in family["scorers"].items():
        lines.append(f"{_mean_recalls(name, entry)}{_deviation(entry['retention_percent'], ' %')}")
    folded = _folds(family["scorers"])
    if folded:
        lines.append(f"\nmean over galleries of {folded['alignment']['size']['mean']:g} pictures")
    lines += [_mean_recalls(name, entry) for name, entry in folded.items()]
    for way, scorers in family.get("labels", {}).items():
        lines.append(f"\nby {LABEL_QUERIES[way]}, %: P@5, P@10, R@1, mAP")
        for name, values in scorers.items():
            shares = [{key: 100 * number for key, number in value.items()} for value in values.values()]
            lines.append(f"{name:<18}" + "".join(f"{_deviation(share):<18}" for share in shares))
    return "\n".join(lines) + "\n"


def label_table(model: str, labels: dict[str, Any]) -> str:
    """What names and kinds of classes find."""
    lines = [f"\n{model} on {labels['folder']}: {labels['pictures']} pictures of {labels['classes']} classes, %"]
    for way, asked in LABEL_QUERIES.items():
        if way in labels:
            queries = labels[way]
            lines.append(
                f"{queries['queries']} queries by {asked}; chance {100 * queries['chance']:.1f}, "
                f"possible P@5 {100 * queries['possible']['p5']:.0f}, P@10 {100 * queries['possible']['p10']:.0f}"
            )
            lines.append(f"{'':<14}" + "".join(f"{title:<22}" for title in ("P@5 [95 %]", "P@10", "R@1", "mAP")))
            for scorer, values in queries["scorers"].items():
                lines.append(f"{scorer:<14}" + "".join(f"{_share(value):<22}" for value in values.values()))
    return "\n".join(lines) + "\n"


def mask_table(model: str, curve: dict[str, Any]) -> str:
    """Recall over the mask ratio, and the gate."""
    jigsaws = f"{curve['draws']} jigsaw{'s' if curve['draws'] > 1 else ''} per picture, seed {curve['seed']}"
    lines = [
        f"{model} with positions hidden: rsum and its difference to γ = 0 [95 % over pictures], {jigsaws}",
        f"{'γ':>5}  {'':<16}{'alignment':<42}vector",
    ]
    for point in ({"ratio": 0.0, "unknown": None, **curve["clean"]}, *curve["points"]):
        kind = {None: "no jigsaw", True: "E_unk", False: "positions kept"}[point["unknown"]]
        cells = [f"{point[name]['rsum']['mean']:6.1f}  {_difference(point[name])}" for name in ("alignment", "vector")]
        lines.append(f"{point['ratio']:5g}  {kind:<16}{cells[0]:<42}{cells[1]}")
    return "\n".join([*lines, *curve["headline"]]) + "\n"


def latency_table(latency: dict[str, Any]) -> str:
    """Milliseconds by part and gallery size, the ratios in words, and bytes."""
    sizes = latency["sizes"]
    lines = [f"p50/p95 in ms{'':<9}" + "".join(f"{size['pictures']:>20,}" for size in sizes)]
    for name in ("encode", "search", "rerank", "exhaustive", "exhaustive_in_memory"):
        times = [size["milliseconds"].get(name) for size in sizes]
        cells = ["–" if time is None else f"{time['p50']:.2f}/{time['p95']:.2f}" for time in times]
        lines.append(f"{name.replace('_', ' '):<22}" + "".join(f"{cell:>20}" for cell in cells))
    megabytes = "".join(f"{size['index_bytes'] / 1e6:>20,.1f}" for size in sizes)
    return "\n".join([*lines, f"{'index, MB':<22}{megabytes}", "", *latency["headline"]]) + "\n"


def _folds(scorers: dict[str, Any]) -> dict[str, Any]:
    return {name: entry["folds"] for name, entry in scorers.items() if "folds" in entry}


def _overlap(scorers: dict[str, Any]) -> str:
    if "alignment" not in scorers:
        return (
            "\nthe pair's own vectors: its alignment head is not trained, so alignment and two stages are left out: "
            "mjp aladin train --phase align trains it"
        )
    if "vector" not in scorers:
        return "\nno vector, no two stages: --phase align trains only alignment; --phase distill trains the vector"
    overlap = scorers["vector"]["overlap10"]
    return f"\ntop-10 overlap of vector with alignment: i2t {overlap['i2t']:.1f} %, t2i {overlap['t2i']:.1f} %"


def _recalls(label: str, entry: dict[str, Any]) -> str:
    i2t, t2i = ("/".join(f"{value:.1f}" for value in entry[direction]) for direction in ("i2t", "t2i"))
    medians = f"{entry['i2t_median']:g}/{entry['t2i_median']:g}"
    return f"{label:<18}{i2t:<18}{t2i:<18}{medians:<12}"


def _mean_recalls(label: str, entry: dict[str, Any]) -> str:
    i2t, t2i = ("/".join(f"{value['mean']:.1f}" for value in entry[direction]) for direction in ("i2t", "t2i"))
    return f"{label:<18}{i2t:<18}{t2i:<18}{_deviation(entry['rsum']):<18}"


def _deviation(value: dict[str, float] | None, unit: str = "") -> str:
    return "–" if value is None else f"{value['mean']:.1f} ± {value['sd']:.1f}{unit}"


def _difference(point: dict[str, Any]) -> str:
    return _between(point["difference"], "+.1f")


def _between(interval: dict[str, float], form: str = ".1f") -> str:
    mean, low, high = (format(interval[key], form) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _share(interval: dict[str, float]) -> str:
    return _between({key: 100 * value for key, value in interval.items()})


def _pair(values: dict[str, Any]) -> str:
    """Both directions; a dash where there are no judgements."""
    return "/".join("–" if values[direction] is None else f"{values[direction]:.1f}" for direction in ("i2t", "t2i"))
