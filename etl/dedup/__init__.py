"""Find duplicates across the whole lake, one pass for each deduplication stage.

``passes.find_duplicates`` runs the passes of a recipe in order, once all documents are stored. A pass reads
the columns that its stage has added to ``texts`` and decides on the documents of this run. Its decisions
are pairs of a dropped document and its keeper, or rows that it writes itself. After the commit,
``key_writer`` stores the keys of the kept documents, so that later runs need not read these documents again.
"""
