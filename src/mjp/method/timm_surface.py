"""What tools expect of a timm model, on the wrapper: classifier, layer groups, weights by timm's own names."""

from collections.abc import Callable
from typing import Any, cast

from timm.models import group_parameters
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.weights import EXTRA_STATE

PREFIX = "model."  # of the timm model's names in those of the wrapper


class TimmSurface(nn.Module):
    """timm's interface, answered by the wrapped model."""

    model: nn.Module
    classes: list[str] | None

    @property
    def num_classes(self) -> int:
        """Number of outputs of the classifier."""
        return cast(int, self.model.num_classes)

    @property
    def num_features(self) -> int:
        """Width of the features in front of the classifier."""
        return cast(int, self.model.num_features)

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """timm's description of the model's weights: input size, mean, std, interpolation, ..."""
        return cast(dict[str, Any], getattr(self.model, "pretrained_cfg", {}))

    def get_classifier(self) -> nn.Module:
        """The layer that turns features into logits."""
        return cast(nn.Module, self._timm.get_classifier())

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Put a new classifier in the place of the old one; names of classes are forgotten."""
        arguments = () if global_pool is None else (global_pool,)
        self._timm.reset_classifier(num_classes, *arguments)
        self.classes = None

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Trade time for memory in training, as timm does."""
        self._timm.set_grad_checkpointing(enable)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits of the result of `forward_features`; with `pre_logits` the pooled features instead."""
        arguments = {"pre_logits": True} if pre_logits else {}
        return cast(Tensor, self._timm.forward_head(features, **arguments))

    def group_matcher(self, coarse: bool = False) -> Callable[[str], tuple[float, ...]]:
        """Which layer a parameter belongs to, as timm's layer-wise learning rates ask for it.

        The timm model's layers are its own. Position embeddings that MJP adds count as the stem, as timm's table does;
        the localization head counts as the classifier, which is as new.
        """
        layers = group_parameters(self.model, self._timm.group_matcher(coarse=coarse), reverse=True)
        last = max(layers.values())

        def layer_of(name: str) -> tuple[float, ...]:
            if not name.startswith(PREFIX):
                return (float(last if name.startswith("localizer") else 0),)
            plain = name.removeprefix(PREFIX)
            inside = [layer for parameter, layer in layers.items() if parameter.startswith(f"{plain}.")]  # of a module
            return (float(layers.get(plain, max(inside, default=last))),)

        return layer_of

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: the timm model's list, and E_unk treated as its table is."""
        timm_names = cast(Any, getattr(self.model, "no_weight_decay", set))()
        names = {f"{PREFIX}{name}" for name in timm_names}
        parameters = {name for name, _ in self.named_parameters()}
        names |= {"rotation", "biases"}
        if "pos_embed" in timm_names or "pos_embed" in parameters:
            names |= {"unknown", "index", "pos_embed"}
        return names & parameters

    @property
    def _timm(self) -> Any:
        return self.model

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Take weights by timm's names too, and files that were written without a state of the generator."""
        names = self.state_dict()
        renamed = []
        for key in [key for key in state_dict if key.startswith(prefix)]:
            name = key.removeprefix(prefix)
            if name not in names and PREFIX + name in names:
                state_dict[prefix + PREFIX + name] = state_dict.pop(key)
                renamed.append(name)
        additions = [name for name in names if not name.startswith(PREFIX) and name != EXTRA_STATE]
        # a file of timm's says nothing about what MJP adds, which then stays as it is
        plain = bool(renamed) and not any(prefix + name in state_dict for name in additions)
        for name in [EXTRA_STATE, *(additions if plain else [])]:
            state_dict.setdefault(prefix + name, names[name])
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def size_setter(model: nn.Module) -> Callable[..., None]:
    """timm's `set_input_size` of a model, which not every family has."""
    if not hasattr(model, "set_input_size"):
        kind = type(model).__name__
        raise InputError(f"timm cannot change the input size of a {kind}: create it with the size that you need")
    return cast(Any, model).set_input_size
