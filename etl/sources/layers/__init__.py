"""Undo what packs the bytes of a text: compression and chunks, as far as they are readable.

``members`` reads the members of a compressed file or body one by one, stops at damage, says why, and can
resume after it. ``unpackers`` has the compressions. ``bodies`` undoes the codings of an HTTP body, of which
``chunks`` is one.
"""
