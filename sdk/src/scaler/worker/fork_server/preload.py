"""Modules that are imported once, before processors are forked, so that every processor has them at no cost.

    pkg.module                  import it
    pkg.module:function         import it and call the function
    pkg.module:function('a', k=1)   with these literals as arguments

Rules:
- A preload is parsed before anything is imported, so that a syntax error is reported early.
- A worker whose preload fails does not start.
"""

from __future__ import annotations

import ast
import importlib
from typing import Any, Dict, List, NamedTuple, Sequence

from scaler.exceptions import PreloadError


class Preload(NamedTuple):
    module: str
    function: str  # empty: import only
    args: Sequence[Any] = ()
    kwargs: Dict[str, Any] = {}  # noqa: RUF012 - never changed


def parse_preload(text: str) -> Preload:
    """One parsed --preload.

    Raises PreloadError.
    """
    module, colon, call = text.strip().partition(":")
    hint = f"cannot understand preload {text!r}: write pkg.module, pkg.module:name or pkg.module:name('a', k=1)"
    if not _is_dotted_name(module):
        raise PreloadError(hint)
    if not colon:
        return Preload(module, "")
    args: List[Any] = []
    kwargs: Dict[str, Any] = {}
    try:
        expression = ast.parse(call.strip(), mode="eval").body
        if isinstance(expression, ast.Call):
            args = [ast.literal_eval(argument) for argument in expression.args]
            kwargs = {str(item.arg): ast.literal_eval(item.value) for item in expression.keywords}
            expression = expression.func
    except (SyntaxError, ValueError):
        raise PreloadError(hint) from None
    function = ast.unparse(expression)
    if not _is_dotted_name(function) or "None" in kwargs:  # **kwargs have no name
        raise PreloadError(hint)
    return Preload(module, function, args, kwargs)


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def preload(texts: Sequence[str]) -> None:
    """Import the module, and call the function if there is one.

    Raises PreloadError, whose cause is the exception of user code.
    """
    parsed: List[Preload] = [parse_preload(text) for text in texts]
    for text, item in zip(texts, parsed):
        try:
            target: Any = importlib.import_module(item.module)
            for name in item.function.split(".") if item.function else ():
                target = getattr(target, name)
            if item.function:
                target(*item.args, **item.kwargs)
        except BaseException as error:
            raise PreloadError(f"preload {text!r} failed: {type(error).__name__}: {error}") from error
