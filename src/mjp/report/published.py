"""What was published, as printed, with what is known to be odd about it.

From Ren et al., Masked Jigsaw Puzzle: A Versatile Position Embedding for Vision Transformers (CVPR 2023), its slides,
poster and supplementary. Text, not numbers: digits are kept as they were printed.
"""

from dataclasses import dataclass

SETTING = "published: ImageNet-1k, 224 px, 300 epochs"


@dataclass(frozen=True)
class Table:
    """Published rows; ours may be put below them, in the same columns."""

    caption: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]
    oddities: tuple[str, ...] = ()


JIGSAW = Table(
    "Accuracy, consistency and Diff.Norm",
    ("top-1, %", "consistency, %", "Diff.Norm"),
    {
        "DeiT-S": ("79.8", "64.3", "16.21"),
        "DeiT-S + MJP": ("80.5", "82.9", "8.96"),
        "Swin-T": ("81.3", "41.5", "15.49"),
        "Swin-T + MJP": ("81.3", "66.9", "12.36"),
        "ResNet-50": ("79.3", "51.5", "11.77"),
        "ResNet-50 + MJP": ("79.4", "69.3", "7.11"),
    },
    (
        "The γ of consistency and Diff.Norm is not stated in the paper; the authors' code has 0.5.",
        "Diff.Norm depends on the scale of a model's features: compare it within a model family at most.",
        "In the authors' code the position table of every variant with E_unk starts and decays differently from the "
        "baseline's, so the published effect of E_unk carries that difference. Here both are treated alike.",
        "How the Swin-T and ResNet-50 rows were made is unknown: these paths of the released code do not run.",
    ),
)

VARIANTS = Table(
    "The ten variants of DeiT-S, as published",
    ("top-1, %", "consistency, %"),
    {
        "A: DeiT-S": ("79.8", "64.3"),
        "B: A without position embeddings": ("77.5", "100"),
        "C: A + SPP": ("74.9", "74.8"),
        "D: A + DAL (NLN), no jigsaw": ("80.0", "64.0"),
        "E: A + jigsaw": ("79.2", "73.8"),
        "F: E + slot index": ("79.9", "79.6"),
        "G: E + E_unk": ("80.1", "83.8"),
        "H: G + DAL (PCA)": ("79.9", "83.4"),
        "I: G + DAL (LN)": ("80.0", "83.8"),
        "J: G + DAL (NLN) = MJP": ("80.5", "82.9"),
    },
    ("D and F to J differ by at most 0.6 points of top-1, and no variance is published: their order may be chance.",),
)

TRAINING_RATIOS = Table(
    "DeiT-S + MJP trained at different γ, as published",
    ("top-1, %", "consistency, %", "Diff.Norm"),
    {
        "γ = 0": ("80.0", "64.0", "16.56"),
        "γ = 0.03": ("80.5", "82.9", "8.96"),
        "γ = 0.09": ("80.3", "88.1", "6.36"),
        "γ = 0.15": ("80.4", "90.5", "5.23"),
        "γ = 0.21": ("80.2", "92.3", "4.39"),
        "γ = 0.27": ("80.3", "93.1", "3.97"),
    },
    (
        "This γ is that of training; the γ of our sweep is that of the test. They are not the same axis.",
        "The authors' code often masks less than γ asks for: at γ = 0.03 nothing at all in 16 % of draws.",
    ),
)

POSITIONS = Table(
    "Position from embedding, mean absolute error",
    ("1-D: patch number", "2-D: row and column"),
    {
        "DeiT-S": ("0.945 ± 0.031", "0.076 ± 0.004"),
        "DeiT-S + MJP, DAL head LN": ("0.566 ± 0.013", "0.042 ± 0.002"),
        "DeiT-S + MJP, DAL head NLN": ("1.301 ± 0.035", "0.134 ± 0.003"),
    },
    (
        "In patches, on a grid of 14 × 14: the error of a smaller grid is smaller for that reason alone, the 1-D error "
        "most of all.",
        "The published MJP with the NLN head, the one with the headline accuracy, is worse here than plain DeiT-S.",
    ),
)

ROBUSTNESS = Table(
    "Robustness",
    ("ImageNet-C, mCE", "ImageNet-A, accuracy, %", "ImageNet-A, AURRA, %", "ImageNet-O, AUPR, %"),
    {"DeiT-S": ("54.6", "19.2", "25.1", "20.9"), "DeiT-S + MJP": ("51.6", "21.6", "29.8", "22.6")},
    (
        "mCE divides each error by AlexNet's on ImageNet-C. The camera-ready paper prints the mean without that "
        "division; the figures here are the divided ones.",
    ),
)

# corruptions of supplementary Table 4, in its order, by their names here
TABLE_4 = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
CORRUPTIONS = Table(
    "Error by corruption, % (supplementary Table 4)",
    (*(name.replace("_", " ") for name in TABLE_4), "mean"),
    {
        "DeiT-S": ("41.0", "42.7", "42.8", "50.5", "59.4", "45.5", "36.1", "43.0", "42.4", "36.6", "44.0"),
        "DeiT-S + MJP": ("39.9", "41.8", "41.2", "49.9", "58.6", "47.4", "34.5", "43.3", "40.0", "35.8", "41.5"),
    },
    (
        "The ten columns of the MJP row average 43.24; the table prints 41.5.",
        "Five of ImageNet-C's fifteen corruptions (zoom blur, snow, frost, fog, brightness) are not in the table.",
    ),
)

SEGMENTATION = Table(
    "Segmentation of ADE20K with UPerNet (supplementary Table 3)",
    ("mIoU, %", "mAcc, %"),
    {"Swin-T": ("43.87", "55.22"), "Swin-T + MJP": ("44.03", "55.50")},
    (
        "No variance is published: what the table claims is that MJP does no harm, not that it helps.",
        "The recipe of Swin's authors trains UPerNet with an auxiliary head, which the UPerNet here does not have.",
    ),
)

LEAKAGE = Table(
    "Gradient leakage of DeiT-S, as published",
    ("setting", "top-1, %", "MSE", "FFT2D", "PSNR, dB", "SSIM", "LPIPS"),
    {
        "ViT-S": ("a", "78.1", ".0278", ".0039", "19.27", ".5203", ".3623"),
        "DeiT-S": ("a", "79.8", ".0350", ".0057", "18.94", ".5182", ".3767"),
        "DeiT-S without PEs": ("a", "77.5", ".0379", ".0082", "20.22", ".5912", ".2692"),
        "DeiT-S + MJP": ("a", "80.5", ".1055", ".0166", "11.52", ".4053", ".6545"),
        "ViT-S, shuffled": ("b", "18.7", ".0327", ".0016", "18.44", ".6065", ".2836"),
        "DeiT-S, shuffled": ("b", "36.0", ".0391", ".0024", "17.60", ".5991", ".3355"),
        "DeiT-S without PEs, shuffled": ("b", "77.5", ".0379", ".0025", "20.25", ".6655", ".2370"),
        "DeiT-S + MJP, shuffled": ("b", "62.9", ".1043", ".0059", "11.66", ".4493", ".6519"),
        "DeiT-S + MJP without E_unk": ("a", "40.6", ".1043", ".0059", "11.66", ".4493", ".6519"),
        "DeiT-S + MJP, against the original": ("c", "62.9", ".1706", ".0338", "8.07", ".0875", ".8945"),
    },
    (
        "A grey picture scores 11 to 15 dB: the published 8 to 12 dB for MJP are worse than knowing nothing, so the "
        "attack there was not told what pictures look like.",
        "The attack needs a first block without LayerNorm and residual connection: the accuracy is of another network "
        "than the leakage.",
        "In setting (a) nothing is shuffled: what changes there is the conditioning of a linear system in float32.",
        "The rows “MJP, shuffled” (b) and “without E_unk” (a) agree in all five metrics; γ is .27 on the slides and .9 "
        "in the supplementary and the code.",
    ),
)
