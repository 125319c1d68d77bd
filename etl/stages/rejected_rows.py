"""What is stored of rejected documents."""

from pydantic import BaseModel, ConfigDict


class Rejected(BaseModel):
    """What the table stores about rejected documents besides their address and reason.

    ``signals``: all signals, also those of stages after the one that rejected the document. Without them a
    run is faster, but ``etl tune`` cannot evaluate these documents. ``text``: the text as it was before
    the stage that rejected the document.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    signals: bool = True
    text: bool = False
