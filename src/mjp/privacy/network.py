"""The network that client and server share: public architecture and weights, wrapped as the defence needs it."""

import copy

from torch import nn

from mjp.method.backbones import fit_config
from mjp.method.config import variant
from mjp.method.model import MJP
from mjp.privacy.combination import Combination


def shared_network(model: MJP, defence: Combination) -> MJP:
    """A copy of the model, wrapped for a defence."""
    config = defence.config(model.config)
    if config == model.config:
        return copy.deepcopy(model).eval()
    bare = copy.deepcopy(model.unwrap())
    wrapped = MJP(bare, fit_config(config, bare)).eval()  # rotary models have nothing to localise
    if model.unknown is not None and wrapped.unknown is not None:  # trained with MJP: its E_unk and head come along
        wrapped.load_state_dict({**wrapped.state_dict(), **model.state_dict()})
    return wrapped.to(next(model.parameters()))


def as_mjp(model: nn.Module) -> MJP:
    """A bare timm model as the trivial MJP model (variant A)."""
    return model if isinstance(model, MJP) else MJP(model, variant("A"))
