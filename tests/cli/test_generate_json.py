"""`localspec generate --json`: one valid object, or one per token."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes.command_line import Run
from fakes.generate_runs import (
    DRAFTER,
    PROMPT,
    SCHEMA,
    VALIDATOR,
    real,
    streamed,
)

pytestmark = pytest.mark.usefixtures("bare_environment")


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_json_is_one_object(generate: Run) -> None:
    done = generate(PROMPT, "--json", "-n", "50", "--seed", "3")
    record = done.record
    assert done.code == 0
    assert (record["seed"], record["rule"]) == (3, "coupled")
    drafters = ["suffix", DRAFTER]
    assert record["speculation"] == {"active": True, "drafters": drafters, "reason": None}
    assert record["recipe"]["depth"] is None
    assert Path(record["model"]["drafter"]).stem == DRAFTER
    assert record["text"] + "\n" == generate(PROMPT, "-n", "50", "--seed", "3").out


def test_json_without_a_drafter(generate: Run) -> None:
    record = generate(PROMPT, "--json", "-n", "1", "--draft", "none").record
    assert record["model"]["drafter"] is None
    assert record["speculation"]["drafters"] == []
    assert record["speculation"]["reason"] == "drafting was turned off"
    assert record["recipe"]["widths"] == [1]
    assert record["stats"]["acceptance_rate"] is None
    assert record["origins"] == ["plain"]


def test_the_schema_allows_nothing_else(generate: Run) -> None:
    """Every key is required, and no other is allowed, at every depth."""
    record = generate(PROMPT, "--json", "-n", "3").record
    objects = [(), ("model",), ("speculation",), ("stats",), ("stats", "seconds"), ("recipe",)]
    for path in objects:
        for key in [*_at(record, path), "surprise"]:
            changed = json.loads(json.dumps(record))
            place = _at(changed, path)
            if place.pop(key, None) is None and key == "surprise":
                place[key] = 1
            with pytest.raises(jsonschema.ValidationError):
                VALIDATOR.validate(changed)


def _at(record: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        record = record[key]
    return record


def test_stream_json_is_an_object_per_line(generate: Run) -> None:
    done = generate(PROMPT, "--stream", "--json", "-n", "50", "--seed", "3", "--logprobs", "0")
    tokens, whole = streamed(done.out)
    assert len(tokens) == 50
    assert all(token["logprob"] <= 0 for token in tokens)
    again = generate(PROMPT, "--json", "-n", "50", "--seed", "3").record
    assert again["text"] == whole["text"]


@pytest.mark.skipif(sys.platform != "linux", reason="a file name that is not UTF-8")
def test_json_of_a_file_name_that_is_not_utf8(tmp_path: Path, drafter_path: Path) -> None:
    copy = tmp_path / os.fsdecode(b"\xff.gguf")
    shutil.copyfile(drafter_path, copy)
    done = real(PROMPT, "--json", "-n", "3", "-m", str(copy))
    assert done.out.isascii()
    assert done.record["model"]["target"] == str(copy)
