"""Tell by its name whether an environment variable may hold a secret: all may, except known ones."""

from collections.abc import Collection


def may_be_secret(name: str, known: Collection[str] = ()) -> bool:
    """Return whether a variable is not HOME, does not begin with TOKENLAKE_, and is not in ``known``.

    >>> may_be_secret("DATABASE_URL"), may_be_secret("TOKENLAKE_LAKE"), may_be_secret("CORPUS", ["CORPUS"])
    (True, False, False)
    """
    return name != "HOME" and not name.startswith("TOKENLAKE_") and name not in known
