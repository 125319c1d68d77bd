"""A count with its noun, in the singular or the plural."""


def many(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> many(1, "file"), many(1200, "file"), many(0, "batch"), many(2, "entry"), many(2, "day")
    ('1 file', '1,200 files', '0 batches', '2 entries', '2 days')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 's', 'x')) else 's'}"
