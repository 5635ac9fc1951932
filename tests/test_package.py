"""The package itself: quick to import, complete, at peace with torchvision."""

import inspect
import subprocess
import sys

import pytest

import mjp


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_does_not_load_torch() -> None:
    heavy = "{'torch', 'timm', 'torchvision', 'numpy', 'huggingface_hub', 'safetensors'}"
    assert run(f"import mjp, sys; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_config_does_not_load_torch() -> None:
    assert run("import mjp, sys; mjp.preset('paper'); mjp.variant('J'); print('torch' in sys.modules)") == "False"


def test_timm_can_be_imported_after_mjp() -> None:
    assert run("import mjp, timm; print(timm.create_model('test_vit').num_classes, mjp.MJP.__name__)") == "1000 MJP"


def test_torchvision_can_be_imported_after_mjp_and_torch() -> None:
    assert run("import mjp, torch; from torchvision.transforms import v2; print(v2.Identity()(3))") == "3"


def test_privacy_and_aladin_need_no_import_of_their_own() -> None:
    code = "import mjp; print(mjp.privacy.audit_update.__name__, mjp.aladin.open_index.__name__)"
    assert run(code) == "audit_update open_index"


@pytest.mark.parametrize("name", mjp.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(mjp, name) is not None
    assert name in dir(mjp)


@pytest.mark.parametrize("name", [name for name in mjp.__all__ if not name.startswith("__")])
def test_every_public_name_is_documented_with_its_arguments(name: str) -> None:
    """The API reference is generated from the docstrings."""
    thing = getattr(mjp, name)
    text = inspect.getdoc(thing) or ""
    assert text
    if not inspect.isfunction(thing):
        methods = [m for n, m in vars(thing).items() if inspect.isfunction(m) and not n.startswith("_")]
        assert [method.__qualname__ for method in methods if not method.__doc__] == []
        return
    parameters = list(inspect.signature(thing).parameters)
    assert [parameter for parameter in parameters if f"    {parameter}: " not in text] == []


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="'mjp' has no attribute 'jigsaw'"):
        _ = mjp.jigsaw


def test_input_error_is_a_value_error() -> None:
    assert issubclass(mjp.InputError, ValueError)


def test_version_is_a_release_number() -> None:
    assert [part.isdigit() for part in mjp.__version__.split(".")] == [True, True, True]
