"""Which family a chat template teaches, by what templates say to their models."""

import pytest

from localspec.server.tool_calls import Family, families, family_of

XML = "<tool_call>\n<function=example_function_name>\n<parameter=p>\nv\n</parameter>"
BEGINS, SEP = "<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁sep\uff5c>"
TAUGHT = [
    ("hermes", "return a json object within <tool_call></tool_call> XML tags", families.HERMES),
    ("qwen xml", f"reply in the following format: {XML}", families.QWEN_XML),
    ("glm", "<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>", families.GLM),
    ("seed", "<seed:tool_call>\n<function=name>", families.SEED),
    ("minimax", "'<minimax:tool_call>' ... <invoke name=\"tool\">", families.MINIMAX),
    ("minimax 3", '<tool_call>\n<invoke name="tool">', families.PLAIN),
    ("llama 3.1", "{{ '<|python_tag|>' + name }}", families.LLAMA),
    ("llama 3.2", """{{ '{"name": "' + name + '", ' }}{{ '"parameters": ' }}""", families.LLAMA),
    ("mistral nemo", "{{ '[TOOL_CALLS][' }}", families.MISTRAL_LIST),
    ("mistral small", "{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", families.MISTRAL),
    ("deepseek r1", f"{BEGINS} + '{SEP}' + name + '\\n```json\\n'", families.DEEPSEEK_FENCED),
    ("deepseek v3.1", f"{BEGINS} + name + '{SEP}'", families.DEEPSEEK),
    ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>", families.KIMI),
    ("gemma 4", "{{ '<|tool_call>call:' + name + '{' }}", families.GEMMA),
    ("function gemma", "<start_function_call>call:", families.FUNCTION_GEMMA),
    ("granite", "respond only with <|tool_call|> followed by a list", families.GRANITE),
    ("command", '<|START_ACTION|>[{"tool_name": ', families.COMMAND),
    ("nemotron", '<TOOLCALL>[{"name"', families.NEMOTRON),
    ("lfm", "<|tool_list_start|>[", families.LFM),
    ("lfm 2.5", "<|tool_call_start|>[", families.LFM),
    ("function tag", "<function=example>{}</function>", families.FUNCTION_TAG),
    ("pythonic", "[func_name1(params_name1=value1)]", families.PYTHONIC),
    ("gpt-oss", "<|start|>assistant<|channel|>final<|message|>", families.HARMONY),
    ("without tools", "{{ messages[0].content }}", families.PLAIN),
    ("no template", None, families.PLAIN),
]


@pytest.mark.parametrize(
    ("template", "family"), [row[1:] for row in TAUGHT], ids=[row[0] for row in TAUGHT]
)
def test_the_family_that_a_template_teaches(template: str | None, family: Family) -> None:
    assert family_of(template) == family


def test_every_family_is_found() -> None:
    assert {*families.FAMILIES} == {family for _, _, family in TAUGHT}
    assert [family.name for family in families.FAMILIES if not family.taught] == ["plain"]


def test_marks_are_what_the_engine_has_to_show() -> None:
    assert families.MISTRAL.marks == ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    assert families.GEMMA.marks == ("<|tool_call>", "<tool_call|>", '<|"|>')
    assert {"<|channel|>", "<|message|>", "<|call|>"} < {*families.HARMONY.marks}
    assert SEP in families.DEEPSEEK_FENCED.marks
    for family in families.FAMILIES:
        assert len(family.marks) == len({*family.marks}) and all(family.marks)
