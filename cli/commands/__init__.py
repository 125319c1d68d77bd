"""The commands of `etl`: one file each, with the command and the text that it prints.

A new command is a new file with a Typer ``app`` and one command, and its line in ``etl.cli.app.COMMANDS``.
"""
