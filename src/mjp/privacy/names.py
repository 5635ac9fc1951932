"""Which parameters belong to the position embeddings."""

from mjp.common.parameter_names import plain_name


def is_positional(name: str) -> bool:
    """Whether a parameter is the position table, E_unk, an index embedding, or of the localization head."""
    plain = plain_name(name)
    return plain in ("pos_embed", "unknown", "index") or plain.startswith("localizer.")
