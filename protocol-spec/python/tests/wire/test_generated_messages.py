"""The generated module matches the schema, and its generator refuses what it cannot express."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import pytest

from scaler_protocol import messages as m

PACKAGE = Path(__file__).resolve().parents[2]

pytest.importorskip("capnp", reason="pycapnp is not installed", exc_type=ImportError)
needs_ruff = pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    sys.path.insert(0, str(PACKAGE / "tools"))  # where its other modules are
    location = importlib.util.spec_from_file_location("generate", PACKAGE / "tools" / "generate.py")
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    sys.modules["generate"] = module  # dataclasses look their module up
    sys.path.insert(0, str(PACKAGE / "tools"))  # where its other modules are
    location.loader.exec_module(module)
    yield module
    sys.path.remove(str(PACKAGE / "tools"))
    del sys.modules["generate"]


@needs_ruff
def test_the_checked_in_module_is_what_the_schema_says(generator: ModuleType) -> None:
    assert Path(os.path.abspath(m.__file__)) == generator.TARGET
    assert generator.TARGET.read_text(encoding="utf-8") == generator.generate(), "run tools/generate.py"


@needs_ruff
def test_check_tells_when_the_module_is_out_of_date(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generator.main(["--check"]) == 0
    edited = tmp_path / "messages.py"
    edited.write_text("# edited by hand\n", encoding="utf-8")
    monkeypatch.setattr(generator, "TARGET", edited)
    assert generator.main(["--check"]) == 1
    assert "run generate.py" in capsys.readouterr().err
    assert generator.main([]) == 0
    assert edited.read_text(encoding="utf-8") == Path(m.__file__).read_text(encoding="utf-8")


def test_there_is_a_class_for_every_type_of_the_schema(generator: ModuleType) -> None:
    enums, structs, members = generator.read_schema(generator.SCHEMA)
    for enum in enums:
        assert [(each.name, each.value) for each in getattr(m, enum.name)] == enum.members
    for layout in structs:
        struct_class = getattr(m, layout.name)
        assert struct_class.__slots__ == tuple(field.name for field in layout.fields)
        assert (layout.data_words, layout.pointer_words) == (struct_class.DATA_WORDS, struct_class.POINTER_WORDS)
    assert [member.__name__ for member in m.MEMBERS] == members


UNION = "struct Message { union { a @0 :A; b @1 :B; } }"
TWO_STRUCTS = "struct A { x @0 :UInt8; } struct B { y @0 :Text; }"


def read(generator: ModuleType, folder: Path, text: str) -> Any:
    (folder / "message.capnp").write_text(f"@0xbf5147cbbecf40c1;\n{text}\n", encoding="utf-8")
    return generator.read_schema(folder)


def test_a_small_schema_is_taken(generator: ModuleType, tmp_path: Path) -> None:
    _, structs, members = read(generator, tmp_path, f"{UNION} {TWO_STRUCTS}")
    assert [layout.name for layout in structs] == ["A", "B"]
    assert members == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{UNION} struct A {{ x @0 :UInt8 = 7; }} struct B {{}}", "A.x: default values"),
        (f"{UNION} struct A {{ x :group {{ y @0 :UInt8; }} }} struct B {{}}", "A.x: groups"),
        (f"{UNION} struct A {{ x @0 :List(List(UInt8)); }} struct B {{}}", r"A.x: List\(list\)"),
        (f"{UNION} struct A {{ x @0 :List(Bool); }} struct B {{}}", r"A.x: List\(bool\)"),
        (f"{UNION} struct A {{ x @0 :AnyPointer; }} struct B {{}}", "A.x: type anyPointer"),
        (f"{UNION} struct A {{ x @0 :B; }} struct B {{ y @0 :List(A); }}", "recursive struct: A -> B -> A"),
        (f"{UNION} struct A {{ union {{ x @0 :UInt8; y @1 :Text; }} }} struct B {{}}", "A: unions"),
        (f"{UNION} struct A {{ read @0 :UInt8; }} struct B {{}}", "field name read"),
        (f"struct Message {{ union {{ a @0 :A; b @1 :A; }} }} {TWO_STRUCTS}", "two members of the same type"),
        (f"struct Message {{ c @2 :UInt8; union {{ a @0 :A; b @1 :B; }} }} {TWO_STRUCTS}", "nothing else"),
    ],
)
def test_what_the_classes_cannot_express_stops_the_generator(
    generator: ModuleType, tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(SystemExit, match=why):
        read(generator, tmp_path, text)


def test_a_message_with_a_payload_contains_no_struct_without_fields(generator: ModuleType) -> None:
    fields = [
        generator.Field("ids", "column", 0, element="uint64"),
        generator.Field("sizes", "column", 1, element="uint32", marks={"payload": ""}),
        generator.Field("inner", "struct", 2, "Inner"),
    ]
    batch = generator.Layout("Batch", 0, 3, fields, {"entries": "ids"})
    inner = generator.Layout("Inner", 1, 0, [generator.Field("number", "uint64", 0)])
    assert generator.flat_structs([batch, inner]) == {"Inner": inner}
    with pytest.raises(SystemExit, match="Inner: structs without fields"):
        generator.flat_structs([batch, generator.Layout("Inner", 0, 0, [])])
