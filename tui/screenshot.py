"""Screenshot: a picture of the chat in origin view.

`python -m localspec_tui.screenshot FILE.svg [TARGET DRAFTER]`: a real model answers, by default the
bundled pair. The speeds in the picture are those of this machine.
"""

import asyncio
from argparse import ArgumentParser
from pathlib import Path

from localspec_tui.headless import headless_chat, use_temporary_home, wait_until_idle
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.widgets.composer import Composer

_SIZE = (100, 34)
_PROMPT = """\
Put sudo in front of each command:
```sh
# Stop a running container
docker stop container_name
# Remove a stopped container
docker rm container_name
# Fetch the logs of a container
docker logs container_name
```"""
_SAMPLING = {"max_tokens": 110, "temperature": 0.2, "seed": 4}


def main() -> None:
    """Write a picture of the chat to a file: of a pair, or of the bundled one."""
    parser = ArgumentParser(prog="python -m localspec_tui.screenshot", description=main.__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("target", nargs="?")
    parser.add_argument("drafter", nargs="?")
    asked = parser.parse_args()
    use_temporary_home()
    draft = f"suffix,{asked.drafter}" if asked.drafter else "auto"
    asyncio.run(_write(asked.file, LaunchOptions(asked.target, draft, sampling=_SAMPLING)))


async def _write(file: Path, options: LaunchOptions) -> None:
    async with headless_chat(options, _SIZE) as app:
        for action in ("screen.origins", "screen.panel"):
            await app.run_action(action)
        app.screen.query_one(Composer).suggest_first_message("")
        app.engine_thread.send(_PROMPT)
        await wait_until_idle(app)
        file.write_text(app.export_screenshot(title="localspec chat"), encoding="utf-8")


if __name__ == "__main__":
    main()
