"""The program `scaler`: running a file's programs, and each of its commands, in separate modules.

Rule: a command's module has a function `main(arguments)`, which returns an exit code; it is imported when it is called.
"""
