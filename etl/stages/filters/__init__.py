"""Stages that keep or reject documents; the file name is the stage's kind."""
