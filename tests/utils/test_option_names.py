"""Option names: of Python, and of the command line where that was typed."""

import pytest

import localspec
from localspec.utils.option_names import option, options, raw_prompt, typed_options


def test_messages_call_options_as_the_user_does() -> None:
    said = [
        (lambda: option("context"), "context", "--ctx"),
        (lambda: option("draft_gpu_layers"), "draft_gpu_layers", "--draft-gpu-layers"),
        (lambda: options(context=4096), "context=4096", "--ctx 4096"),
        (lambda: options(draft="suffix"), "draft='suffix'", "--draft suffix"),
        (lambda: options(device=["none"]), "device=['none']", "--device none"),
        (lambda: options(flash_attention=False), "flash_attention=False", "--flash-attn off"),
        (
            lambda: options(rope_scaling="yarn", rope_scale=2),
            "rope_scaling='yarn', rope_scale=2",
            "--rope-scaling yarn --rope-scale 2",
        ),
        (raw_prompt, "a text as the prompt, not messages", "a raw prompt (--raw)"),
    ]
    for say, in_python, at_the_terminal in said:
        assert say() == in_python
        with typed_options():
            assert say() == at_the_terminal
        assert say() == in_python


def test_an_error_names_the_parameter_of_the_script() -> None:
    full = pytest.raises(localspec.InvalidValueError, match=r"shorten it or raise context$")
    with localspec.load(draft="none", context=64) as engine, full:
        engine.generate("word " * 100)
