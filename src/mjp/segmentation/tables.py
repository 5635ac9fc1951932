"""Results as text for a terminal."""

from mjp.common.results import Results


def summary(results: Results) -> str:
    """A row for each class, and the means with their intervals."""
    (name, model), *_ = results.models.items()
    width = max(map(len, model["classes"]))
    lines = [f"{'class':<{width}}   IoU, %   accuracy, %"]
    for label, row in model["classes"].items():
        if row["pixels"]:
            lines.append(f"{label:<{width}}   {100 * row['iou']:6.2f}   {100 * row['recall']:11.2f}")
    absent = sum(not row["pixels"] for row in model["classes"].values())
    if absent:
        lines.append(f"{absent} classes do not occur in these pictures and are left out of the means")
    lines.append(f"\n{name}, {model['pictures']} {results.body['split']} pictures of {results.body['data']}:")
    for key, label in (("miou", "mIoU"), ("macc", "mAcc"), ("accuracy", "pixel accuracy")):
        mean, low, high = (100 * value for value in model[key])
        lines.append(f"{label:<14}  {mean:.2f} %  [{low:.2f}, {high:.2f}]")
    return "\n".join(lines)
