"""The program `scaler`: what it does with a file, and each of its commands, in a module of its own.

Rule: a command's module has a function `main(arguments)`, which returns an exit code; it is imported when it is called.
"""
