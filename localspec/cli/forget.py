"""`localspec forget`: delete the texts that were kept to draft from."""

import click

from localspec.cli.output import Output
from localspec.drafters.suffix_store import clear_all, default_folder
from localspec.errors import LocalspecError


@click.command()
def forget() -> None:
    """Delete every text that --remember kept."""
    output = Output()
    try:
        clear_all()
    except OSError as error:
        raise LocalspecError(f"past texts cannot be deleted: {error}") from error
    output.note(f"nothing is kept in {default_folder()} any more")
