"""The function of an actor's calls, as its processor loads it: it holds the instance.

    "", arguments          makes the instance: the first call
    "method", arguments    calls a method
    ".attribute"           reads an attribute

Rules:
- It is loaded once, in the processor that the actor is bound to; `worker_actors` sees to that.
- The instance is made once. If that fails, it is not tried again: each call fails with the reason.
- `async def` methods run in one event loop, so that what belongs to a loop can be kept in the instance.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Optional, Tuple

from scaler.exceptions import ActorCreationError, ActorLostError
from scaler.values.coroutines import Runner
from scaler.values.texts import description_of

CREATE = ""
ATTRIBUTE = "."


class ActorFunction:
    """Parameters:
    maker: the class, or what else makes the instance.
    name: of the actor, for errors and monitors.
    """

    def __init__(self, maker: Callable[..., Any], name: str) -> None:
        self.__qualname__ = name
        self._maker = maker
        self._instance: Any = None
        self._is_made = False
        self._failure: Optional[BaseException] = None
        self._runner = Runner()

    def __reduce__(self) -> Tuple[Any, ...]:
        return ActorFunction, (self._maker, self.__qualname__)

    def __call__(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        if method == CREATE:
            self._make(args, kwargs)
            return None
        if not self._is_made:
            raise self._missing()
        if method.startswith(ATTRIBUTE):
            return getattr(self._instance, method[1:])
        result = getattr(self._instance, method)(*args, **kwargs)
        return self._runner.run(result) if inspect.iscoroutine(result) else result

    def _make(self, args: Tuple[Any, ...], kwargs: Any) -> None:
        if self._is_made or self._failure is not None:
            raise ActorLostError(f"the actor {self.__qualname__} can be created only once")
        try:
            instance = self._maker(*args, **kwargs)
            self._instance = self._runner.run(instance) if inspect.iscoroutine(instance) else instance
        except BaseException as error:
            self._failure = error
            raise self._missing() from error
        self._is_made = True

    def _missing(self) -> BaseException:
        """Why there is no instance."""
        if self._failure is None:
            return ActorLostError(
                f"the actor {self.__qualname__} was never created: its creation was cancelled, its arguments could not"
                " be loaded, or the client has reconnected since; make a new one with client.actor(...)"
            )
        error = ActorCreationError(
            f"the actor {self.__qualname__} could not be created: it raised {description_of(self._failure)}"
        )
        error.__cause__ = self._failure
        return error
