"""What `mjp aladin eval` and `mjp aladin bench` say in the terminal; pure functions of what they write."""

from typing import Any

HEAD = f"{'':<18}{'i2t R@1/5/10':<18}{'t2i R@1/5/10':<18}"


def scorer_table(model: str, split: str, facts: dict[str, Any]) -> str:
    """All scorers of one model."""
    lines = [
        f"\n{model} on {split}: {facts['pictures']} pictures, {facts['captions']} captions",
        f"{HEAD}{'median':<12}{'rsum [95 %]':<24}of alignment",
    ]
    for name, each in facts["scorers"].items():
        label, kept = f"{name}, K={each['k']}" if "k" in each else name, each["retention_percent"]
        share = "–" if kept is None else f"{kept:.1f} %"
        lines.append(f"{_recalls(label, each)}{_between(each['rsum_interval']):<24}{share}")
    folded = {name: each["folds"] for name, each in facts["scorers"].items() if "folds" in each}
    if folded:
        lines.append(f"\nmean over galleries of {folded['alignment']['size']} pictures")
    lines += [f"{_recalls(name, each)}{each['rsum']:.1f}" for name, each in folded.items()]
    lines.append(f"\n{'NDCG@25, %':<18}" + "".join(f"{kind:<18}" for kind in next(iter(facts["ndcg25"].values()))))
    for name, kinds in facts["ndcg25"].items():
        lines.append(f"{name:<18}" + "".join(_pair(v).ljust(18) for v in kinds.values()))
    if "vector" in facts["scorers"]:
        same = facts["scorers"]["vector"]["overlap10"]
        lines.append(f"\ntop-10 overlap of vector with alignment: i2t {same['i2t']:.1f} %, t2i {same['t2i']:.1f} %")
    else:
        lines.append(
            "\nno vector, no two stages: --phase align trains alignment alone, --phase distill goes on from it"
        )
    return "\n".join(lines) + "\n"


def seed_table(family: dict[str, Any]) -> str:
    """The same for the mean of several seeds."""
    lines = [
        f"\n{family['name']}: mean ± standard deviation of {len(family['seeds'])} seeds "
        f"({', '.join(map(str, family['seeds']))})",
        f"{HEAD}{'rsum':<18}of alignment",
    ]
    for name, each in family["scorers"].items():
        lines.append(f"{_mean_recalls(name, each)}{_deviation(each['retention_percent'], ' %')}")
    folded = {name: each["folds"] for name, each in family["scorers"].items() if "folds" in each}
    if folded:
        lines.append(f"\nmean over galleries of {folded['alignment']['size']['mean']:g} pictures")
    lines += [_mean_recalls(name, each) for name, each in folded.items()]
    return "\n".join(lines) + "\n"


def mask_table(model: str, curve: dict[str, Any]) -> str:
    """Recall against the mask ratio, and the gate."""
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


def latency_table(facts: dict[str, Any]) -> str:
    """Milliseconds by part and gallery size, what the ratios are ratios of, and bytes."""
    lines = [f"p50/p95 in ms{'':<9}" + "".join(f"{each['pictures']:>20,}" for each in facts["sizes"])]
    for name in ("encode", "search", "rerank", "exhaustive", "exhaustive_in_memory"):
        cells = [each["milliseconds"].get(name) for each in facts["sizes"]]
        shown = ["–" if cell is None else f"{cell['p50']:.2f}/{cell['p95']:.2f}" for cell in cells]
        lines.append(f"{name.replace('_', ' '):<22}" + "".join(f"{cell:>20}" for cell in shown))
    megabytes = "".join(f"{each['index_bytes'] / 1e6:>20,.1f}" for each in facts["sizes"])
    return "\n".join([*lines, f"{'index, MB':<22}{megabytes}", "", *facts["headline"]]) + "\n"


def _recalls(label: str, each: dict[str, Any]) -> str:
    i2t, t2i = ("/".join(f"{value:.1f}" for value in each[way]) for way in ("i2t", "t2i"))
    middle = f"{each['i2t_median']:g}/{each['t2i_median']:g}"
    return f"{label:<18}{i2t:<18}{t2i:<18}{middle:<12}"


def _mean_recalls(label: str, each: dict[str, Any]) -> str:
    i2t, t2i = ("/".join(f"{value['mean']:.1f}" for value in each[way]) for way in ("i2t", "t2i"))
    return f"{label:<18}{i2t:<18}{t2i:<18}{_deviation(each['rsum']):<18}"


def _deviation(found: dict[str, float] | None, unit: str = "") -> str:
    return "–" if found is None else f"{found['mean']:.1f} ± {found['sd']:.1f}{unit}"


def _difference(point: dict[str, Any]) -> str:
    return _between(point["difference"], "+.1f")


def _between(interval: dict[str, float], form: str = ".1f") -> str:
    mean, low, high = (format(interval[key], form) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _pair(values: dict[str, Any]) -> str:
    """Both directions; a dash where nobody judged."""
    return "/".join("–" if values[way] is None else f"{values[way]:.1f}" for way in ("i2t", "t2i"))
