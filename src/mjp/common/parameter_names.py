"""Names of parameters, whatever was put around the model. No torch in here."""

WRAPPERS = ("module.", "_orig_mod.", "_module.", "model.")  # prefixes of DDP, torch.compile, Opacus and MJP


def plain_name(name: str) -> str:
    """The name of a parameter in timm (for what MJP adds: in MJP)."""
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name
