"""Ordered input: a line of text whose keys act in the order in which they are pressed."""

from textual import events
from textual.widgets import Input

from localspec_tui.typed_keys import OrderedKeys


class OrderedInput(Input, OrderedKeys):
    """What is typed behind Enter goes where Enter leads to."""

    async def _on_key(self, event: events.Key) -> None:
        await self.run_key(event)
