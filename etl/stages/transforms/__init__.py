"""Stages that rewrite the text; the file name is the stage's kind."""
