"""The commands that show a store while others work on it: in the terminal, and as a page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.errors import BadInput

WatchedStore = Annotated[Path, typer.Argument(help="The store; it is only read.")]


def watch(
    store: WatchedStore,
    every: Annotated[float, typer.Option("--every", help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the store once and end.")] = False,
) -> None:
    """Watch a store while other commands work on it.

    Shows a dot for each run, the time left and the newest verdicts.
    """
    from assay.live.overview import Observer
    from assay.live.watch import watch as show
    from assay.store import Store
    from assay.terminal import console

    if not 0.1 <= every <= 3600:
        raise BadInput(f"--every {every:g} is not valid: seconds from 0.1 to 3600")
    show(console(), Observer(Store.open(store)), every, once)


def serve(
    store: WatchedStore,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8765,
) -> None:
    """Serve a page that shows a store and keeps itself up to date.

    The page is for browsers on this machine only.
    """
    from assay.live.overview import Observer
    from assay.live.server import Server
    from assay.store import Store

    with Server(Observer(Store.open(store)), port) as server:
        typer.echo(f"{server.address} shows {store}; it is only read. Ctrl-C ends.")
        server.serve_forever()
