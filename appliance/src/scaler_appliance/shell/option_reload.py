"""Reads the scheduler's options again, as on SIGHUP, and says what has changed.

    command line, environment, file ──▶ OptionReload ──▶ log level; changed settings ──▶ the core

Rules:
- It is all or nothing: if anything is invalid, nothing changes, and one line of the log says what is wrong, and where.
- The command line and the environment of a running process stay what they were. So only the file can change, and only
  options that neither of them sets.
- An option that needs a new start is named in a warning, each time, and keeps its value.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any, Callable, Dict

from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_protocol.programs.options import ConfigurationError
from scaler_protocol.programs.options.reloading import changed_options

logger = logging.getLogger("scaler")


class OptionReload:
    """The options of a running scheduler.

    Parameters:
        options: what it was started with.
        read: reads them again; raises ConfigurationError.
        settings_of: the core's settings that may change, by name.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        read: Callable[[], argparse.Namespace],
        settings_of: Callable[[argparse.Namespace], Dict[str, Any]],
    ) -> None:
        self._options = argparse.Namespace(**vars(options))
        self._read = read
        self._settings_of = settings_of

    def reload(self) -> Dict[str, Any]:
        """Use the options as they are now; returns the core's settings that have changed."""
        try:
            after = self._read()
        except ConfigurationError as error:
            logger.error("Scheduler: the options cannot be loaded again, those from before are still used: %s", error)
            return {}
        changed = changed_options(SCHEDULER, self._options, after)
        for each in changed.others:
            logger.warning("Scheduler: %s: takes effect at the next start", each.text)
        if not changed.reloadable:
            return {}
        before = self._settings_of(self._options)
        for each in changed.reloadable:
            setattr(self._options, each.option.key, each.after)
        level = logger.level if self._options.logging_config_file else logging.getLevelName(self._options.logging_level)
        logger.setLevel(min(logger.level, level))  # if one of the two levels shows the line, it is shown
        logger.info("Scheduler: options have changed: %s", "; ".join(each.text for each in changed.reloadable))
        logger.setLevel(level)
        now = self._settings_of(self._options)
        return {name: value for name, value in now.items() if value != before[name]}


def options_of_now(options: argparse.Namespace, read: Callable[[], argparse.Namespace]) -> argparse.Namespace:
    """The options of a scheduler that was started with some, and begins to serve later; `read` as of `OptionReload`."""
    now = argparse.Namespace(**vars(options))
    try:
        changed = changed_options(SCHEDULER, options, read())
    except ConfigurationError as error:
        logger.error("Scheduler: the options cannot be loaded again, those from before are used: %s", error)
        return now
    for each in changed.reloadable:
        setattr(now, each.option.key, each.after)
    return now
