"""How a bug is planted: the source of one function is changed, within this process.

    scaler.client.core.credit:Credit.is_left      which function
    ">= 0" instead of "> 0"                        what is changed in it

Rules:
- A change whose text is not in the function, or is there twice, is an error: the lists follow the code.
- The code of the function object itself is replaced, so it does not matter who holds the function; `planted` puts the
  right code back.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Dict, Iterator, NamedTuple

CLIENT = "scaler.client.core"
AGENT = "scaler.worker.agent.core"
SESSION = "scaler_protocol.session"
SCHEDULER = "scaler_appliance.core"
PROVISION = "scaler.provision.core"


class PlantedBug(NamedTuple):
    """
    Parameters:
        core: whose it is: client, agent, session, scheduler or provisioner.
        function: module and qualified name.
        right: a part of its source.
        wrong: what stands there instead.
    """

    core: str
    function: str
    right: str
    wrong: str


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Within it, the bug is in the code."""
    function = _function(bug.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(bug.right) == 1, f"{bug.function} has {source.count(bug.right)} times: {bug.right}"
    source = source.replace(bug.right, bug.wrong)
    source = source[source.index("def ") :]  # without decorators
    made: Dict[str, Any] = {}
    within = ", ".join(function.__code__.co_freevars)  # such as the class that `super()` looks for
    text = f"def make({within}):\n{textwrap.indent(source, '    ')}\n    return {function.__name__}"
    code = compile(f"from __future__ import annotations\n{text}", f"<planted in {bug.function}>", "exec")
    exec(code, dict(function.__globals__), made)
    right = function.__code__
    function.__code__ = made["make"](*function.__code__.co_freevars).__code__
    try:
        yield
    finally:
        function.__code__ = right


def _function(name: str) -> FunctionType:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, property):
        found = found.fget
    assert isinstance(found, FunctionType), name
    return found
