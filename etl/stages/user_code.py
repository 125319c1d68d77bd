"""A user's Python code: find the files that a module needs, without running it, and import it.

A module needs its file and, below the folder in which it was found:

- if it is in a package (a folder with ``__init__.py``): all files of the outermost package, data included;
- otherwise the files that its string literals name, relative to the module:
  ``Path(__file__).with_name("words.txt")``, ``HERE / "lists" / "en.txt"``;
- the modules and packages in the same folder that it imports anywhere, and what these need;
- the files and folders that the recipe names besides.

Hidden files and compiled code are left out. An installed module (in the standard library or site-packages)
must be installed on every machine: it has no files here, and only the file of the module is hashed.
"""

import ast
import hashlib
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import etl
from etl.errors import RecipeError, nearest_names
from etl.storage import FileInfo
from etl.storage.file_sets import FileSet, describe_files

_INSTALLED: Final = ("site-packages", "dist-packages")
_STANDARD: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_MAX_LITERAL: Final = 255  # characters of a path

_IMPORT_HINT: Final = (
    "if {0} is a library, install it for the driver and all workers: `pip install {0}`, on a cluster as a "
    "line of their image (docs/guides/own-filter.md); if it is your own module, put it beside this one and "
    "import it with an import statement"
)
_FILE_HINT: Final = (
    "open files relative to the module, as in Path(__file__).with_name('words.txt'), and list those that are "
    "not named by a literal under `data` of the stage: only these are sent to workers"
)


@dataclass(frozen=True)
class UserModule:
    """A module of a user: its name, its file, the folder that its name is relative to, and its files."""

    name: str
    origin: str
    root: str
    files: FileSet | None  # None: the module is installed

    @property
    def sha256(self) -> str:
        """The digest of all files, or of the file of an installed module."""
        if self.files is not None:
            return self.files.key
        return hashlib.sha256(Path(self.origin).read_bytes()).hexdigest()

    def load(self) -> ModuleType:
        """Import the module, again if one of its files has changed, as in a notebook.

        Raises RecipeError if it cannot be imported.
        """
        return _import(self, self.sha256)

    def line_of(self, error: BaseException) -> str | None:
        """Return ``file:line`` of the last line of the module's files that led to an error, if any."""
        names = {self.origin: Path(self.origin).name}
        if self.files is not None:
            names = {str(Path(self.root, file.name)): file.name for file in self.files.files}
        frames = reversed(traceback.extract_tb(error.__traceback__))
        known = (f"{names[f.filename]}:{f.lineno}" for f in frames if f.filename in names)
        return next(known, None)

    def check_libraries(self, function: str) -> None:
        """Raise RecipeError if a function imports a library that is not installed.

        Imports in ``try`` and ``if`` statements may fail.
        """
        if not self.origin.endswith(".py"):
            return
        tree = ast.parse(Path(self.origin).read_bytes())
        with self.importable():
            for name in _required(tree, function):
                if name not in sys.modules and find_spec(name) is None:
                    what = f"{self.name} imports {name!r}, which is not installed"
                    hint = _IMPORT_HINT.format(name)
                    raise RecipeError(what, where=self.origin, hint=hint)

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Put the folder of the module first on ``sys.path``, for imports by its functions."""
        sys.path.insert(0, self.root)
        try:
            yield
        finally:
            sys.path.remove(self.root)


def find_module(name: str, folder: str, files: Sequence[str]) -> UserModule:
    """Find a module in a folder, or else as Python does, with the files that it needs.

    ``files`` are other files and folders to include, relative to the folder of the module. Raises
    RecipeError if the module or one of the files does not exist.
    """
    importlib.invalidate_caches()  # the file may have just been written
    spec = _find_spec(name, [folder, *sys.path])
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        modules = sorted(path.stem for path in Path(folder).glob("*.py"))
        hint = nearest_names(name, modules) or "put the module in this folder"
        raise RecipeError(f"no Python module {name!r}", where=folder, hint=hint)
    # ``a.b`` in /x/a/b.py has the root /x, two levels up; the package ``a.b`` in /x/a/b/__init__.py
    # three.
    depth = name.count(".") + 1 + (spec.submodule_search_locations is not None)
    root = Path(spec.origin).absolute().parents[depth - 1]
    # An installed library is not sent to workers: they have it, or report that it is missing.
    if str(root) != folder and _is_installed(root, name):
        return UserModule(name, spec.origin, str(root), None)
    collected = _collect(root, name) | _named_files(root, files)
    infos = {rel: _file_info(path) for rel, path in sorted(collected.items())}
    return UserModule(name, spec.origin, str(root), describe_files(f"file://{root}", infos))


def name_function(function: Callable[..., Any]) -> tuple[str, str]:
    """Return a function as ``module:function``, and the folder in which the module is found.

    Raises ValueError if no file of a module defines it: it is from a notebook, a script, or inside another
    function.

    >>> from textwrap import dedent
    >>> name_function(dedent)[0]
    'textwrap:dedent'
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = sys.modules.get(str(function.__module__))
    file = getattr(module, "__file__", None)
    is_top = name.isidentifier() and getattr(module, name, None) is function
    if module is None or file is None or module.__name__ == "__main__" or not is_top:
        raise ValueError(
            f"no module defines the function {name!r}, so its code cannot be recorded and sent to workers; "
            "move it to a file such as my_filters.py (in a notebook: %%writefile my_filters.py), and import "
            "it from there"
        )
    depth = module.__name__.count(".") + 1 + hasattr(module, "__path__")
    return f"{module.__name__}:{name}", str(Path(file).absolute().parents[depth - 1])


def hint_for(error: BaseException) -> str | None:
    """Return what to do about an error of a user's code: a missing library or file."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _IMPORT_HINT.format(error.name.partition(".")[0])
    return _FILE_HINT if isinstance(error, FileNotFoundError) else None


def _find_spec(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    """Find a module in folders, even if another module of this name is already loaded."""
    package = name.rpartition(".")[0]
    if not package:
        return PathFinder.find_spec(name, folders)
    package_spec = _find_spec(package, folders)
    locations = package_spec.submodule_search_locations if package_spec else None
    return PathFinder.find_spec(name, locations) if locations else None


def _is_installed(root: Path, name: str) -> bool:
    is_ours = name.partition(".")[0] == etl.__name__ and root == Path(etl.__file__).parents[1]
    return is_ours or _is_library(root)


def _is_library(folder: Path) -> bool:
    """Return whether a folder has the standard library or installed packages, or is below such a folder."""
    is_standard = any(folder.is_relative_to(path) for path in _STANDARD)
    return is_standard or not {*folder.parts}.isdisjoint(_INSTALLED)


def _collect(root: Path, name: str) -> dict[str, Path]:
    """Return the files that a module below a root needs, by their paths relative to the root."""
    files: dict[str, Path] = {}
    names, seen = [name], {etl.__name__}
    while names:
        # Follow the imports of the module: modules below the root are the user's own. Others are
        # libraries, for which ``_files_of`` finds nothing.
        name = names.pop()
        if name in seen or name.startswith(f"{etl.__name__}."):
            continue
        seen.add(name)
        in_package, paths = _files_of(root, name)
        for path in paths:
            relative = path.relative_to(root)
            if relative.as_posix() in files:
                continue
            files[relative.as_posix()] = path
            if path.suffix == ".py":
                code = _read_code(_file_info(path), ".".join(relative.parts[:-1]))
                names += code.imports
                # All files of a package are taken anyway; a lone module may open any file beside it by a
                # literal name.
                named = () if in_package else code.literals
                files |= _existing(root, path.parent, named)
    return files


def _files_of(root: Path, name: str) -> tuple[bool, list[Path]]:
    """Return whether a module below a root is in a package, and its file or all files of the package."""
    folders, parts = [str(root)], name.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), folders)
        if spec is None:
            break
        if spec.origin is None:  # a folder without __init__.py
            folders = list(spec.submodule_search_locations or ())
            continue
        path = Path(spec.origin)
        if spec.submodule_search_locations is None:
            return False, [path]
        # A package is sent as a whole: which of its modules and data it loads is not known.
        return True, list(_walk(path.parent))
    return False, []


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except hidden ones and compiled code."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "." and name != "__pycache__"]
        paths = (Path(parent, name) for name in names if name[0] != "." and name[-4:] != ".pyc")
        yield from (path for path in paths if path.is_file())


def _existing(root: Path, folder: Path, literals: Sequence[str]) -> dict[str, Path]:
    """Return the files below the root that literals of a module in a folder name."""
    paths = (Path(os.path.normpath(folder / text)) for text in literals)
    return {
        path.relative_to(root).as_posix(): path
        for path in paths
        if path.is_relative_to(root) and path.is_file()
    }


def _named_files(root: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the files that a recipe names, and those below the folders that it names."""
    files: dict[str, Path] = {}
    for name in names:
        path = Path(os.path.normpath(root / name))
        found = [path] if path.is_file() else list(_walk(path))
        if not found or not path.is_relative_to(root):
            raise RecipeError(
                f"`data` names {name!r}: no such file below the folder of the module, or an empty folder",
                where=str(root),
            )
        files |= {each.relative_to(root).as_posix(): each for each in found}
    return files


def _file_info(path: Path) -> FileInfo:
    status = path.stat()
    return FileInfo(f"file://{path}", status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


@dataclass(frozen=True)
class _Code:
    """What a module names: the modules that it may import, and literals."""

    imports: tuple[str, ...]
    literals: tuple[str, ...]


@lru_cache(maxsize=2048)
def _read_code(file: FileInfo, package: str) -> _Code:
    """Parse a module of a package; a file that is not valid Python names nothing."""
    try:
        tree = ast.parse(Path(file.uri.removeprefix("file://")).read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return _Code((), ())
    nodes = list(ast.walk(tree))
    imports = {name for node in nodes for name in _imported_names(node, package)}
    literals = {"/".join(parts) for node in nodes if (parts := _literal_parts(node))}
    literals = {text for text in literals if len(text) <= _MAX_LITERAL and text.isprintable()}
    return _Code(*(tuple(sorted(each)) for each in (imports, literals)))


def _imported_names(node: ast.AST, package: str) -> list[str]:
    """Return the full names that a statement may import: ``from a import b`` imports a or a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    # ``from ..c import d`` in package ``a.b`` has level 2: one level is the package itself, so the base
    # is ``a.c``.
    parents = package.split(".") if node.level and package else []
    parts = [*parents[: len(parents) - node.level + 1], *(node.module or "").split(".")]
    base = ".".join(part for part in parts if part)
    return [f"{base}.{alias.name}".strip(".") for alias in node.names] + [base] * bool(base)


def _required(tree: ast.Module, function: str) -> Iterator[str]:
    """Yield the top names of imports in a function, and in the functions and classes that it uses."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    known = {node.name: node for node in tree.body if isinstance(node, kinds)}
    names = [function]
    while names:
        node = known.pop(names.pop(), None)
        if node is not None:
            yield from _unconditional_imports(node)
            names += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _unconditional_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        # Optional imports and ``if TYPE_CHECKING`` need not be there.
        if isinstance(node, ast.Try | ast.If):
            continue
        if not (isinstance(node, ast.ImportFrom) and node.level):
            yield from (name.partition(".")[0] for name in _imported_names(node, ""))
        yield from _unconditional_imports(node)


def _literal_parts(node: ast.AST) -> list[str]:
    """Return the literals at the end of a path: of a string, ``a / "b" / "c"`` or ``join(a, "b", "c")``."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        right = _literal_parts(node.right)
        return [*_literal_parts(node.left), *right] if right else []
    if isinstance(node, ast.Call):
        parts: list[str] = []
        # In join(folder, "lists", "en.txt"), the literals at the end name lists/en.txt; what precedes is
        # only known when the code runs.
        for argument in reversed(node.args):
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                break
            parts.insert(0, argument.value)
        return parts
    return []


@cache
def _import(module: UserModule, sha256: str) -> ModuleType:
    try:
        with module.importable():
            # Python would return a module of the same name that another recipe or version has loaded.
            _forget_others(module, sha256)
            # Relative imports of the module need its package to be loaded.
            if package := module.name.rpartition(".")[0]:
                importlib.import_module(package)
            spec = _find_spec(module.name, [module.root])
            assert spec is not None
            assert spec.loader is not None
            loaded = module_from_spec(spec)
            sys.modules[module.name] = loaded
            spec.loader.exec_module(loaded)
            # The mark lets a later version of the files replace all modules that this import has loaded.
            for each in _loaded(module):
                vars(each)[_DIGEST] = sha256
    except Exception as error:
        sys.modules.pop(module.name, None)
        what = f"{module.name} cannot be imported: {type(error).__name__}: {error}"
        raise RecipeError(what, where=module.origin, hint=hint_for(error)) from error
    return loaded


_DIGEST: Final = "__tokenlake_sha256__"
"""The attribute of a user's module with the digest of the files that it was imported with."""


def _loaded(module: UserModule) -> list[ModuleType]:
    """Return the loaded modules that have the names of a user's files; installed ones stay as they are."""
    files = module.files.files if module.files is not None else ()
    tops = {file.name.split("/")[0].removesuffix(".py") for file in files}
    named = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] in tops]
    return [each for each in named if (path := _path_of(each)) and not _is_library(path.parent)]


def _path_of(module: ModuleType) -> Path | None:
    """Return the file or the first folder of a module; None if it is built in."""
    folders = getattr(module, "__path__", None) or [None]
    path = getattr(module, "__file__", None) or next(iter(folders))
    return None if path is None else Path(path)


def _forget_others(module: UserModule, sha256: str) -> None:
    """Forget loaded modules of the same names that come from other folders or other versions."""
    for each in _loaded(module):
        path = _path_of(each)
        # Modules without the mark were imported by the user's program itself, from the same folder: they
        # stay.
        is_ours = path is not None and path.is_relative_to(module.root)
        if not is_ours or getattr(each, _DIGEST, sha256) != sha256:
            sys.modules.pop(each.__name__, None)
