"""What Windows and macOS do differently, as far as it can be tried on Linux.

`make lint` lets mypy look for what Windows lacks, and ruff for texts without an encoding.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from graphlib import TopologicalSorter
from pathlib import Path, PureWindowsPath
from typing import Final

import pytest

from arrow_io.core import extras
from arrow_io.storage import location as location_module
from arrow_io.storage.location import Location, folder_and_name
from arrow_io.storage.store_kinds import store_kind
from connector.cli import streams

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("arrow_io", "connector", "spark_ds", "sql_examples", "docs", "tests", ".github")
LONGEST_PATH: Final = 180
"""Characters of a path in a checkout: Windows allows 260, with those of the checkout's folder."""
NODES_WITH_COLONS: Final = (
    "tests/data/golden/pulsar-5.0.1/metadata-store/txn/segment-state/aborted/"
)
RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
BITS: Final = "arrow_io.core._bits"
CIMPORT: Final = re.compile(r"^from ([\w.]+) cimport ", re.MULTILINE)
C_BLOCK: Final = re.compile(r'cdef extern from \*:\n    """\n(.*?)\n    """', re.DOTALL)
# As with Visual C++, which has neither the macros of gcc, nor its builtins and attributes.
VISUAL_C: Final = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#undef __GNUC__
#undef __SSE2__
#undef __BYTE_ORDER__
#undef __x86_64__
#undef __clang__
#undef __attribute__
#define _MSC_VER 1940
"""
INTRINSICS: Final = """
#define __forceinline inline
static unsigned char _BitScanForward(unsigned long* number, unsigned long bits) {
    for (*number = 0; !(bits & 1); bits >>= 1) ++*number;
    return 1;
}
static unsigned char _BitScanForward64(unsigned long* number, unsigned long long bits) {
    for (*number = 0; !(bits & 1); bits >>= 1) ++*number;
    return 1;
}
unsigned long _byteswap_ulong(unsigned long number);
unsigned long long _byteswap_uint64(unsigned long long number);
"""


class WindowsPath(PureWindowsPath):
    """A path of Windows, for code that asks the system nothing but its working directory."""

    def expanduser(self) -> WindowsPath:
        """Return the path: none of these begins with a tilde."""
        return self

    def absolute(self) -> WindowsPath:
        """Return the path below a working directory."""
        return WindowsPath("D:\\work", self)


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let paths of locations be those of Windows."""
    monkeypatch.setattr(location_module, "Path", WindowsPath)
    monkeypatch.setattr(os, "sep", "\\")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("C:\\data\\bucket", "C:/data/bucket"),
        ("C:/data/bucket", "C:/data/bucket"),
        ("bucket", "D:/work/bucket"),
        ("\\\\server\\share\\bucket", "//server/share/bucket"),
        ("file:///C:/data/bucket", "file:///C:/data/bucket"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
    ],
)
@pytest.mark.usefixtures("on_windows")
def test_a_path_of_windows_is_no_url(path: str, url: str) -> None:
    """The letter of a drive is no scheme, and names below a path have one separator."""
    location = Location(path)

    assert location.url == url
    assert location.child("a").url == f"{url}/a"
    assert store_kind("C:\\data\\bucket") is None


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("C:\\data\\orders.json.gz", ("C:/data/", "orders.json.gz")),
        ("C:/data/orders.json.gz", ("C:/data/", "orders.json.gz")),
        ("orders.json.gz", ("", "orders.json.gz")),
        ("s3://bucket/a\\b", ("s3://bucket/", "a\\b")),
    ],
)
@pytest.mark.usefixtures("on_windows")
def test_the_last_name_of_a_path_of_windows_is_found(path: str, parts: tuple[str, str]) -> None:
    """A backslash separates names in a path; in the URL of a store it is part of a name."""
    assert tuple(each.removesuffix("/") for each in folder_and_name(path)) == tuple(
        each.removesuffix("/") for each in parts
    )


def test_files_are_replaced_and_linked_where_no_folder_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows only files can be opened, and moving a file does not replace another."""
    system_open = os.open

    def open_file(path: str, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return system_open(path, flags, mode)

    def move(*_: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "rename", move)
    monkeypatch.setattr(shutil, "move", move)
    location = Location(str(tmp_path))

    for data in (b"first", b"second"):
        location.write_object("object", data, user_metadata={})
    assert location.write_new_object("new", b"mine")
    assert not location.write_new_object("new", b"yours")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "object": b"second",
        "new": b"mine",
    }


class _Console(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_console_of_windows_is_written_by_pythons_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes written to its file descriptor would be taken for text of an old code page."""
    monkeypatch.setattr(streams, "_IS_WINDOWS", True)
    console = _Console()

    assert streams._stream(streams._Output, console) is console


def test_what_is_redirected_on_windows_is_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines end as everywhere, and a text keeps its letters: an escape may be no JSON."""
    monkeypatch.setattr(streams, "_IS_WINDOWS", True)
    file = tmp_path / "printed"
    with file.open("w", encoding="cp1252") as redirected:
        stream = streams._stream(streams._Output, redirected)
        stream.write('{"name": "本é"}\n')
        stream.flush()

    assert file.read_bytes() == '{"name": "本é"}\n'.encode()


def test_a_checkout_on_windows_is_named_without_a_slash_before_its_drive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the command in an error can be copied."""
    monkeypatch.setattr(extras, "_source", lambda: "file:///C:/my%20code/pulsar-offload")
    monkeypatch.setattr(sys, "platform", "win32")

    assert extras.install_command("cli") == "pip install 'C:/my code/pulsar-offload[cli]'"


def test_every_file_can_be_checked_out_on_windows_and_macos() -> None:
    """No name is reserved or has a character that is, and none differs in case alone.

    The names of a cluster's nodes have colons: a checkout on Windows leaves these nodes out.
    """
    paths = [
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if "__pycache__" not in path.parts
    ]
    with_colons = [path for path in paths if path.startswith(NODES_WITH_COLONS)]
    paths = [path for path in paths if path not in with_colons]
    names = {name for path in paths for name in path.split("/")}

    assert len(with_colons) == 8
    assert [name for name in sorted(names) if RESERVED.fullmatch(name)] == []
    assert [name for name in sorted(names) if re.search(r'[<>:"|?*\\]|[ .]$', name)] == []
    assert len({path.lower() for path in paths}) == len(paths)
    assert [path for path in paths if len(path) > LONGEST_PATH] == []


def test_the_c_of_the_core_needs_no_gcc(tmp_path: Path) -> None:
    """Each block of C compiles with intrinsics of Visual C++ and our header for those of gcc."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip("there is no C compiler")
    header = ROOT / "arrow_io" / "core" / "_msvc.h"
    texts = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text("utf-8")
        for file in (ROOT / "arrow_io").rglob("*.pxd")
    }
    # As in the C that Cython makes, a block comes after those of the modules that its own imports.
    needs = {name: set(CIMPORT.findall(text)) & texts.keys() for name, text in texts.items()}
    for name in needs.keys() - {BITS}:
        needs[name].add(BITS)
    names = TopologicalSorter(needs).static_order()
    blocks = [block for name in names for block in C_BLOCK.findall(texts[name])]
    assert len(blocks) >= 5
    # A block is a string of Cython, in which a backslash is written twice.
    source = "\n".join(blocks).replace("\\\\", "\\")
    lacking = set(re.findall(r"__builtin_\w+", source)) - set(
        re.findall(r"#define (__builtin_\w+)", header.read_text("utf-8"))
    )
    (tmp_path / "intrin.h").write_text(INTRINSICS, "utf-8")
    lines = [
        VISUAL_C,
        *(f"#define {name} missing{name}" for name in sorted(lacking)),
        f'#include "{header}"',
        source,
        "int main(void) {",
        '    printf("%d %d", pulsar_offload_lowest(1), pulsar_offload_lowest(1ull << 40));',
        "    return 0;",
        "}\n",
    ]
    program = tmp_path / "blocks.c"
    program.write_text("\n".join(lines), "utf-8")
    options = ["-std=c11", "-pedantic-errors", "-Werror=implicit-function-declaration"]
    compiled = subprocess.run(
        [compiler, *options, f"-I{tmp_path}", "-o", tmp_path / "blocks", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    ran = subprocess.run([tmp_path / "blocks"], capture_output=True, text=True, check=True)
    assert ran.stdout == "0 40"
