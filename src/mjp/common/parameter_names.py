"""Names of parameters, whatever was put around the model. No torch in here."""

from collections.abc import Iterable

WRAPPERS = ("module.", "_orig_mod.", "_module.", "model.")  # prefixes of DDP, torch.compile, Opacus and MJP


def plain_name(name: str) -> str:
    """The name of a parameter in timm (for what MJP adds: in MJP)."""
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name


# the first parts of the names of a timm ViT, and of what MJP adds
FIRST_PARTS = frozenset(
    {"patch_embed", "pos_embed", "cls_token", "dist_token", "reg_token", "norm_pre", "blocks", "norm", "fc_norm"}
    | {"head", "head_dist", "unknown", "index", "localizer"}
)


def shared_prefix(names: Iterable[str]) -> str:
    """What stands before the names of a ViT's parameters in somebody's own module, such as `net.vit.`; else nothing."""
    prefixes = set()
    for name in names:
        parts = name.split(".")
        place = next((number for number, part in enumerate(parts) if part in FIRST_PARTS), 0)
        prefixes.add("".join(f"{part}." for part in parts[:place]))
    return prefixes.pop() if len(prefixes) == 1 else ""
