"""The prices of workers and storage, from a small YAML file that users edit, and what usage costs at them."""

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from etl.schemas import Usage
from etl.settings_files.settings import Settings
from etl.settings_files.yaml_file import FileKind, read_settings

SHIPPED: Final = Path(__file__).with_name("prices.yaml")
"""The list prices that are used unless a file is given; the file names their source."""

_KIND: Final = FileKind(noun="prices file", hint="write the keys of etl/job/prices.yaml")
_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Prices(Settings):
    """The prices of a cloud in one currency."""

    name: str
    date: Annotated[dt.date, Field(strict=False)]  # also in quotes
    currency: str
    core_hour_on_demand: _Price
    core_hour_spot: _Price
    thousand_read_requests: _Price
    thousand_write_requests: _Price
    gigabyte_month: _Price
    gigabyte_to_region: _Price
    gigabyte_to_internet: _Price

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> "Prices":
        """Read a file, by default the shipped one; raises RecipeError with file and line."""
        return read_settings(cls, SHIPPED if path is None else path, _KIND)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What usage costs."""

    prices: str  # their name and date
    currency: str
    on_demand: float  # workers and requests
    spot: float
    storage_per_month: float  # of what is stored in addition


def cost_of(usage: Usage, prices: Prices) -> Cost:
    """Return what usage costs."""
    hours = usage.core_seconds / 3600
    requests = (
        usage.read_requests * prices.thousand_read_requests
        + usage.write_requests * prices.thousand_write_requests
    ) / 1000
    return Cost(
        prices=f"{prices.name}, {prices.date}",
        currency=prices.currency,
        on_demand=hours * prices.core_hour_on_demand + requests,
        spot=hours * prices.core_hour_spot + requests,
        storage_per_month=usage.stored_bytes / 1e9 * prices.gigabyte_month,
    )
