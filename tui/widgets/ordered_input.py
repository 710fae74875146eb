"""Ordered input: a line of text whose keys act in the order in which they are pressed."""

from textual import events
from textual.widgets import Input


class OrderedInput(Input):
    """Textual runs the actions of keys later, and letters overtake them."""

    async def _on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
