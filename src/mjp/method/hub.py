"""Save and load wrapped models: a folder, or a repository of the Hugging Face hub.

    DIRECTORY/
      config.json         which timm model, with which arguments, and the MJPConfig
      model.safetensors   all weights, timm's under `model.`
      README.md           a model card, unless there is one already

Files are written under temporary names and renamed: a failure leaves what was there before. Nothing is unpickled.
"""

import json
import warnings
from abc import abstractmethod
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Self, cast

import timm
import torch
from huggingface_hub import ModelHubMixin, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors.torch import save_file
from timm.models import Beit, Eva, VisionTransformer
from torch import Tensor, nn

from mjp.common.errors import InputError, first_line, shorten
from mjp.common.files import write_atomically
from mjp.common.hub import hub_is_reachable
from mjp.common.read import read_object
from mjp.common.weights import read_tensors
from mjp.method.config import MJPConfig
from mjp.pictures.preprocessing import Preprocessing

CONFIG, WEIGHTS = "config.json", "model.safetensors"
MAX_SIZE, MAX_DEPTH = 2**20, 1000  # of any argument of a model, of its layers
DOWNLOAD = {"revision", "cache_dir", "force_download", "local_files_only", "token"}
LOADING = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "features_only"}

CARD = """---
library_name: mjp
pipeline_tag: image-classification
tags: [mjp, masked-jigsaw-puzzle, timm, vision-transformer]
---
# {architecture} with masked jigsaw position embeddings

    import mjp
    model = mjp.MJP.from_pretrained("this folder or repository")
    timm_model = model.unwrap()

timm arguments: {model_args}. MJP: shuffle {shuffle}, ratio {ratio}, position {position}, localize {localize}.
The full configuration is in config.json.
"""


class HubModel(ModelHubMixin, nn.Module):
    """`save_pretrained`, `from_pretrained` and `push_to_hub` for a timm model with an MJPConfig around it."""

    model: nn.Module
    config: MJPConfig
    classes: list[str] | None
    preprocessing: Preprocessing | None

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """All weights by name, as they go into the file."""

    def save_pretrained(
        self, save_directory: str | Path, *, model_args: dict[str, Any] | None = None, **hub: Any
    ) -> str | None:
        """Write the model to a folder, and to the hub on request.

        Args:
            save_directory: The folder; config.json, model.safetensors and README.md are written to it.
            model_args: The arguments that timm.create_model got. timm does not keep them; by default they are read off
                the model and checked, and if that fails an error asks for them.
            hub: `push_to_hub=True` and `repo_id=...` upload the folder; further options are huggingface_hub's.
        """
        unknown = sorted(set(hub) - {"push_to_hub", "repo_id", "config", "model_card_kwargs"})
        if unknown and not hub.get("push_to_hub"):
            raise InputError(f"save_pretrained does not know {', '.join(unknown)}")
        folder = Path(save_directory)
        recipe = _recipe(self.model, model_args)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().contiguous() for name, tensor in self.weights().items()}
        write_atomically(folder / WEIGHTS, lambda path: save_file(weights, path, metadata={"format": "pt"}))
        preprocessing = None if self.preprocessing is None else self.preprocessing.to_dict()
        about = {"classes": self.classes, "preprocessing": preprocessing, "mjp": self.config.to_dict()}
        text = json.dumps({**recipe, **about}, indent=2)
        write_atomically(folder / CONFIG, lambda path: path.write_text(text + "\n"))
        if not (folder / "README.md").exists():
            card = CARD.format(**recipe, **self.config.to_dict())
            write_atomically(folder / "README.md", lambda path: path.write_text(card))
        if hub.pop("push_to_hub", False):
            return self.push_to_hub(hub.pop("repo_id", None) or folder.name, **hub)
        return None

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **download: Any) -> Self:
        """Load a folder that `save_pretrained` wrote, or a repository of the hub.

        Args:
            pretrained_model_name_or_path: The folder, or OWNER/NAME on the hub.
            download: For the hub: `revision`, `cache_dir`, `force_download`, `local_files_only`, `token`.
        """
        source = str(pretrained_model_name_or_path)
        unknown = sorted(set(download) - DOWNLOAD)
        if unknown:
            raise InputError(
                f"from_pretrained does not know {', '.join(unknown)}: it takes {', '.join(sorted(DOWNLOAD))}"
            )
        config = _read_config(_locate(source, CONFIG, download))
        path = _locate(source, WEIGHTS, download)
        weights = read_tensors(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice for training a new model, which this one is not
            model = cast(Any, cls)(_create(source, config, weights), MJPConfig.from_dict(config["mjp"]))
        model.classes = config["classes"]
        model.preprocessing = config["preprocessing"]
        if different := sorted(set(weights) ^ set(model.weights())):
            raise InputError(f"{path} belongs to another model: only one of the two has {different[0][:80]}")
        try:
            model.to(next((t.dtype for t in weights.values() if t.is_floating_point()), torch.float32))
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]  # torch names the weights on the following lines
            raise InputError(f"{path} belongs to another model: {reason}") from error
        return model


def saved_recipe(source: str | Path) -> tuple[str, dict[str, Any]]:
    """The timm name of a saved model, and the arguments that timm created it with."""
    config = _read_config(_locate(str(source), CONFIG, {}))
    return config["architecture"], config["model_args"]


def _locate(source: str, name: str, download: dict[str, Any]) -> Path:
    if Path(source).is_dir():
        path = Path(source) / name
        if not path.is_file():
            raise InputError(f"{path} is missing: {source} is not a folder written by save_pretrained")
        return path
    offline = {} if hub_is_reachable() else {"local_files_only": True}
    try:
        return Path(hf_hub_download(source, name, **{**download, **offline}))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = "no connection" if offline else first_line(error)
        raise InputError(f"{source} is neither a folder here nor a repository that can be reached: {reason}") from error


def _read_config(path: Path) -> dict[str, Any]:
    """config.json, checked: it may come from anywhere, and must not make timm load anything of its own."""
    config = read_object(path, advice="save the model again with save_pretrained")
    if not {"architecture", "model_args", "mjp"} <= set(config) or not isinstance(config["model_args"], dict):
        raise InputError(f"{path} does not describe an MJP model: was it written by save_pretrained?")
    name, arguments = config["architecture"], set(config["model_args"])
    if not isinstance(name, str) or not timm.is_model(name):
        raise InputError(f"{path} names the model {shorten(name)}, which timm {timm.__version__} does not have")
    if not arguments.isdisjoint(LOADING):
        raise InputError(f"{path} asks timm to load files by {', '.join(sorted(arguments & LOADING))}: it may not")
    classes = config.setdefault("classes", None)
    if classes is not None and not (isinstance(classes, list) and all(isinstance(c, str) for c in classes)):
        raise InputError(f"{path}: classes must be a list of names")
    config["preprocessing"] = _read_preprocessing(path, config.get("preprocessing"))
    return config


def _read_preprocessing(path: Path, values: Any) -> Preprocessing | None:
    """How pictures enter the model; folders from before it was stored have none."""
    try:
        return None if values is None else Preprocessing.from_dict(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _create(source: str, config: dict[str, Any], weights: dict[str, Tensor]) -> nn.Module:
    """The timm model that config.json describes; first without memory, which made-up sizes would use up."""
    name, arguments = config["architecture"], config["model_args"]
    _check_sizes(source, arguments)
    try:
        with torch.device("meta"):
            values = sum(tensor.numel() for tensor in timm.create_model(name, **arguments).state_dict().values())
        stored = sum(tensor.numel() for tensor in weights.values())
        if values > stored:
            raise InputError(f"{CONFIG} describes a model of {values:,} weights, {WEIGHTS} holds {stored:,}")
        return timm.create_model(name, **arguments)
    except Exception as error:  # whatever a constructor raises over numbers that it was not written for
        raise InputError(f"timm cannot create the model that {source} describes: {first_line(error)}") from error


def _check_sizes(source: str, arguments: dict[str, Any]) -> None:
    """Refuse sizes and depths beyond any real model: even a model without memory takes time to build."""
    for name, value in arguments.items():
        if not name.isidentifier() or len(name) > 40:
            raise InputError(f"{source}: {shorten(name, 40)} is not an argument of a timm model")
        limit = MAX_DEPTH if "depth" in name else MAX_SIZE
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and not 0 <= number <= limit:
                raise InputError(f"{source}: {name[:80]} must lie between 0 and {limit}, not {shorten(number)}")


# timm arguments that can be read off a model; those that do not apply to a family raise AttributeError and are skipped
_READ: dict[str, Callable[[Any], Any]] = {
    "num_classes": lambda m: m.num_classes,
    "in_chans": lambda m: m.in_chans,
    "img_size": lambda m: tuple(m.patch_embed.img_size),
    "patch_size": lambda m: m.patch_embed.patch_size[0],
    "embed_dim": lambda m: m.embed_dim,
    "depth": lambda m: len(m.blocks),
    "depths": lambda m: tuple(len(stage.blocks) for stage in m.layers),  # Swin
    "num_heads": lambda m: _heads(m),
    "window_size": lambda m: max(block.window_size[0] for stage in m.layers for block in stage.blocks),  # Swin
    "mlp_ratio": lambda m: m.blocks[0].mlp.fc1.out_features / m.embed_dim,
    "reg_tokens": lambda m: m.num_reg_tokens,
    "class_token": lambda m: m.has_class_token,
    "no_embed_class": lambda m: m.no_embed_class,
    "dynamic_img_size": lambda m: m.dynamic_img_size,
    "dynamic_img_pad": lambda m: m.patch_embed.dynamic_img_pad,
    "global_pool": lambda m: m.global_pool if isinstance(m.global_pool, str) else None,
    "pos_embed": lambda m: ("none" if m.pos_embed is None else "learn") if isinstance(m, VisionTransformer) else None,
    "use_abs_pos_emb": lambda m: m.pos_embed is not None if isinstance(m, Eva | Beit) else None,
    "use_rot_pos_emb": lambda m: m.rope is not None if isinstance(m, Eva) else None,
}


def _heads(model: Any) -> Any:
    """One number for a ViT, one for each stage of a Swin."""
    if hasattr(model, "layers"):
        return tuple(stage.blocks[0].attn.num_heads for stage in model.layers)
    return model.blocks[0].attn.num_heads


def _recipe(model: nn.Module, model_args: dict[str, Any] | None) -> dict[str, Any]:
    """How timm would create this model again: its name and the arguments in which it differs from the stock one."""
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture")
    if not architecture:
        raise InputError("the model does not know its timm name: create it with timm.create_model to save it")
    if model_args is None:
        with torch.random.fork_rng(devices=[]):
            stock = timm.create_model(architecture)
        differences = {name: _differs(read, model, stock) for name, read in _READ.items()}
        model_args = {name: value for name, value in differences.items() if value is not None}
    if not _same_function(model, architecture, model_args):
        raise InputError(
            f"{architecture} with {model_args or 'no arguments'} is not this model: pass model_args=, the arguments "
            "that timm.create_model got"
        )
    return {"architecture": architecture, "model_args": model_args}


def _differs(read: Callable[[Any], Any], model: Any, stock: Any) -> Any:
    try:
        value, usual = read(model), read(stock)
    except (AttributeError, IndexError, TypeError):
        return None
    return value if value != usual else None


def _same_function(model: nn.Module, architecture: str, model_args: dict[str, Any]) -> bool:
    """Whether the recipe gives this very function: same weights fit, same output on one picture.

    Noise is added to the weights of both, or a zero head and tiny layer scales would make all functions look alike.
    """
    copy: Any = deepcopy(model).cpu().float().eval()
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for parameter in copy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.1)
        try:
            again: Any = timm.create_model(architecture, **model_args).eval()
            again.load_state_dict(copy.state_dict())
        except (RuntimeError, TypeError, ValueError, AssertionError):
            return False
        size = again.pretrained_cfg.get("input_size", (3, 224, 224))
        channels = getattr(again, "in_chans", size[0])
        embed = getattr(getattr(again, "encoder", again), "patch_embed", None)
        height, width = getattr(embed, "img_size", None) or size[-2:]
        picture = torch.randn(1, channels, height, width, generator=noise)
        return torch.allclose(again(picture), copy(picture), rtol=1e-3, atol=1e-3, equal_nan=True)
