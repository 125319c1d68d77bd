"""What is stored of rejected documents."""

from pydantic import BaseModel, ConfigDict


class Rejected(BaseModel):
    """What the table holds of rejected documents besides their address and reason.

    ``signals``: all of them, also those that a document would have come to after its rejection; without
    them a run is faster, and ``etl tune`` cannot tell about these documents. ``text``: as it was when it
    came to the stage that rejected it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    signals: bool = True
    text: bool = False
