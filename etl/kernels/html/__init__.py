"""The main text of HTML pages in one compiled pass over their bytes, without a DOM."""
