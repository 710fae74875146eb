"""Screenshot: a picture of the chat in origin view.

`python -m localspec_tui.screenshot FILE.svg [TARGET DRAFTER]`: a real model answers, by default the
bundled pair, and speeds are those of the machine.
"""

import asyncio
import sys
from pathlib import Path

from localspec_tui.headless import forget_home, rest, unattended
from localspec_tui.launch_options import Start

_SIZE = (100, 34)
_PROMPT = "def fibonacci(n):\n"
_SAMPLING = {"max_tokens": 110, "temperature": 0.8, "seed": 4}


def main() -> None:
    """Write it to the file that is named."""
    forget_home()
    file, *models = sys.argv[1:]
    model, draft = (models[0], f"suffix,{models[1]}") if models else (None, "auto")
    asyncio.run(_take(Path(file), Start(model, draft, sampling=_SAMPLING)))


async def _take(file: Path, start: Start) -> None:
    async with unattended(start, _SIZE) as app:
        for action in ("screen.origins", "screen.panel"):
            await app.run_action(action)
        app.worker.send(_PROMPT)
        await rest(app)
        file.write_text(app.export_screenshot(title="localspec chat"), encoding="utf-8")


if __name__ == "__main__":
    main()
