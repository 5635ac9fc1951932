"""Fine-tune UPerNet on a backbone, plain or pretrained with MJP, and measure mIoU and mAcc.

A backbone that mjp train wrote: mjp segment --data CAMVID --checkpoint out/swin-paper --crop 160 --epochs 40

The published setting: mjp segment --data ADE20K --checkpoint swin_t_mjp.safetensors --short-side 512

Interrupted runs resume bit-exactly: rerun the same command. What MJP means here: the weights of the backbone; the
jigsaw is off. See docs/segmentation.md.
"""

from mjp.common.results import Results
from mjp.segmentation.config import SegmentConfig as Options

__all__ = ["Options", "run"]


def run(options: Options) -> Results | None:
    from mjp.segmentation.tables import summary
    from mjp.segmentation.train import segment

    results = segment(options)
    if results is None:
        print(f"stopped   rerun the command without --stop-after to continue {options.out}")
        return None
    print(summary(results))
    print(f"results   {options.out / 'results.json'}\npictures  {options.out / 'predictions.png'}")
    return results
