"""What people read while an evaluation runs: means in percent with 95 % intervals."""

from mjp.evaluation.sweep import Sweep


def sweep_table(name: str, result: Sweep) -> str:
    accuracy = f"top-1 {result.top1.percent()} %, top-5 {result.top5.percent()} % on {result.pictures} pictures"
    lines = [f"\n{name}: {accuracy}"]
    if result.points:
        draws = "1 draw" if result.draws == 1 else f"{result.draws} draws"
        lines += [
            f"under the jigsaw, {draws}, seed {result.seed}, 95 % intervals over pictures:",
            f"{'γ':>5}  {'E_unk':<5}  {'top-1, %':<19}  {'consistency, %':<19}  {'Diff.Norm':>9}  {'relative':>8}",
        ]
    for point in result.points:
        shares = f"{point.metrics['top1'].percent():<19}  {point.metrics['consistency'].percent():<19}"
        shifts = f"{point.metrics['diff_norm'].mean:9.3f}  {point.metrics['diff_relative'].mean:8.3f}"
        lines.append(f"{point.ratio:5g}  {'yes' if point.unknown else 'no':<5}  {shares}  {shifts}")
    return "\n".join(lines) + "\n"
