"""What a processor remembers of the code of clients, and what it says of code that it lacks."""

from __future__ import annotations

import importlib
import pickle
from types import SimpleNamespace

import pytest

from scaler.values.code_notes import CodeNote
from scaler.worker.processor import imported_code


def test_clients_are_told_once_of_each_version_and_few_versions_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = SimpleNamespace(digest="here", path=__file__)
    versions = SimpleNamespace(
        start=lambda: None, refresh=lambda: None, get=lambda name: here, named_in=lambda content: {"shapes"}
    )
    monkeypatch.setattr(imported_code, "versions", versions)
    monkeypatch.setattr(imported_code, "MAXIMUM_TOLD", 3)
    code = imported_code.ImportedCode()
    for version in range(20):
        note = CodeNote(modules={"shapes": f"version {version}"})
        assert [len(code.after_loading(note, b"")) for _ in range(2)] == [1, 0]
        assert len(code._told) <= 3


def test_a_module_that_is_not_here_is_named_with_what_to_do_once() -> None:
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module("nowhere_to_be_found.late")
    for _ in range(2):  # the same exception may fail two tasks
        imported_code.explain_import_error(missing.value)
    text = str(pickle.loads(pickle.dumps(missing.value)))
    assert text.startswith("No module named 'nowhere_to_be_found'; the worker on ")
    assert text.count("Client(modules=['nowhere_to_be_found'])") == 1


def test_a_part_of_a_module_that_is_here_cannot_be_shipped() -> None:
    with pytest.raises(ModuleNotFoundError) as part:
        importlib.import_module("json.nowhere_to_be_found")
    imported_code.explain_import_error(part.value)
    assert str(part.value) == "No module named 'json.nowhere_to_be_found'"


@pytest.mark.parametrize("name", ["", 7, "..", "pickle"])
def test_what_users_raise_themselves_stays_as_it_is(name: object) -> None:
    error = ModuleNotFoundError("the plug-in is switched off", name=name)  # type: ignore[arg-type]  # not always a text
    imported_code.explain_import_error(error)
    assert error.args == ("the plug-in is switched off",)
