"""Loads custom code by `FILE.py:CLASS` or `MODULE:CLASS`: scheduler plugins, structures for nodes.

One loader for all of them, with uniform errors about what is wrong and where.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from minikube_py.errors import RequestError

_PRODUCT = Path(__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}


def raised() -> tuple[type[BaseException], ...]:
    """As in `except raised():` around code of others, which awaits nothing: all that it may raise. SystemExit would end
    the process, CancelledError its task, in silence, and a class derived from BaseException, as a panic of Rust is, the
    whole scheduler. KeyboardInterrupt is the user's, and passes."""
    return () if isinstance(sys.exception(), KeyboardInterrupt) else (BaseException,)


class BadCode(RequestError):
    """The code is missing or cannot be run; the text says where, and what to write."""


def absolute(target: str) -> str:
    """`FILE.py:CLASS` with an absolute path, independent of the working directory; others unchanged."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).absolute()}:{name}" if place.endswith(".py") else target


def find_class(target: str, *methods: str, required: bool = True) -> Callable[..., Any]:
    """The class or factory. A class needs one of `methods` to be selected, and if it is `required`. Raises: BadCode."""
    place, _, attribute = target.rpartition(":")
    module = module_of(place)
    kind = getattr(module, attribute, None)
    if callable(kind):
        if required and inspect.isclass(kind):
            require_one(kind, methods, target)
        return kind  # type: ignore[no-any-return]
    classes = [name for name, each in vars(module).items() if inspect.isclass(each) and _has(each, methods)]
    listed = f"; with {' or '.join(methods)} it has {', '.join(classes)}" if classes else ""
    raise BadCode(f"{place} has no class {attribute!r}{listed}")


def require_one(own: Any, methods: Sequence[str], target: str) -> None:
    """Raises: BadCode for an object or class without any of `methods`."""
    if methods and not _has(own, methods):
        raise BadCode(f"{target} has no method {' or '.join(methods)}{meant(own, methods)}")


def meant(own: Any, methods: Sequence[str]) -> str:
    """The own methods whose names are close to one of `methods`: " ('scores': did you mean 'score'?)", or ""."""
    named = (name for name in dir(own) if not name.startswith("_") and callable(getattr(own, name, None)))
    close = [(name, get_close_matches(name, methods, n=1, cutoff=0.75)) for name in named if name not in methods]
    told = ", ".join(f"{name!r}: did you mean {found[0]!r}?" for name, found in close if found)
    return told and f" ({told})"


def name_of(kind: Callable[..., Any], target: str, attribute: str) -> str:
    """Its own name by that attribute, or its class name."""
    own = getattr(kind, attribute, "")
    return own if isinstance(own, str) and own else target.rpartition(":")[2]


def _has(kind: Any, methods: Sequence[str]) -> bool:
    return any(callable(getattr(kind, method, None)) for method in methods)


def module_of(place: str) -> ModuleType:
    """A file that ends in `.py`, or a module name. Raises: BadCode."""
    if place.endswith(".py"):
        return _module_of_file(Path(place))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise BadCode(f"module {place} cannot be imported: {error}; write MODULE:CLASS or FILE.py:CLASS") from error
    except raised() as error:
        raise BadCode(f"module {place} cannot be imported: {told(error)}") from error


@cache
def plugged(group: str) -> dict[str, str]:
    """What this package plugs into its own layers: name and `MODULE:CLASS`, of `plugins.toml`."""
    import tomllib

    found: dict[str, str] = tomllib.loads((_PRODUCT / "plugins.toml").read_text(encoding="utf-8"))[group]
    return found


def load(point: Any) -> Any:
    """What an entry point of an installed distribution names. Raises: BadCode."""
    try:
        return point.load()
    except raised() as error:
        raise BadCode(f'entry point "{point.name}" ({point.value}) cannot be loaded: {told(error)}') from error


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadCode(f"there is no file {path}; write FILE.py:CLASS")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _own_modules(path.parent.resolve()):
        before = sys.modules.get(path.stem)
        if before is None or getattr(before, "__file__", None) == module.__file__:
            # Dataclasses and pickle look there. A file must not shadow an existing module of that name.
            sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise BadCode(f"{path}, line {error.lineno}: SyntaxError: {error.msg}; correct it there") from error
        except raised() as error:
            raise BadCode(f"{path} cannot be run: {told(error)}") from error
    return module


_imported: dict[Path, dict[str, ModuleType]] = {}
"""By folder, the modules that files of it imported from there."""


def imported_from(folder: Path) -> list[ModuleType]:
    """What files of a folder that were loaded imported from it."""
    return list(_imported.get(folder, {}).values())


@contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """What is imported meanwhile is the folder's, and not a module of that name that another folder has. Afterwards a
    name that two folders have is in `sys.modules` for neither, and its import is refused."""
    own = _imported.setdefault(folder, {})
    beside = {each.stem for each in folder.iterdir() if each.suffix == ".py" or each.is_dir()}
    path = {_resolved(os.path.abspath(each)) for each in sys.path}
    elsewhere = _elsewhere(folder)
    close = {name: sys.modules[name] for name in _close(beside | elsewhere)}
    others = {name: each for name, each in close.items() if _hides(name, each, folder, beside, elsewhere, path)}
    for name in others:
        del sys.modules[name]
    sys.modules.update(own)
    before = set(sys.modules) - own.keys()
    sys.path.insert(0, str(folder))
    if any_twice := _Twice in sys.meta_path:
        sys.meta_path.remove(_Twice)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        new = {name: sys.modules[name] for name in sorted(sys.modules.keys() - before)}
        own.update({name: each for name, each in new.items() if _owns(folder, name, _place(each), path - {folder})})
        twice = own.keys() & _elsewhere(folder)
        for name in sorted(twice):
            sys.modules.pop(name, None)
            for number, modules in enumerate(_imported.values()):
                if name in modules:
                    _rename(modules[name], f"{name.replace('.', '_')}@{number}")
        sys.modules.update({name: each for name, each in others.items() if name not in twice})
        if any_twice or twice:
            sys.meta_path.insert(0, _Twice)


def _close(names: set[str]) -> list[str]:
    """Loaded modules of those names, and within them, also where the package itself is loaded no more."""
    return [name for name in list(sys.modules) if name in names or name.partition(".")[0] in names]


def _elsewhere(folder: Path) -> set[str]:
    """Names of modules that files of other folders imported from there."""
    return set().union(*(modules for of, modules in _imported.items() if of != folder))


@cache
def _resolved(place: str) -> Path:
    """Of one on the path, where links stay: each is a walk over all folders above it."""
    return Path(place).resolve()


def _folders(name: str) -> list[Path]:
    return [folder for folder, modules in _imported.items() if name in modules]


def _rename(module: ModuleType, name: str) -> None:
    """A name of its own, by which pickle and `typing.get_type_hints` find what is defined in it."""
    before = module.__name__
    if before == name:
        return
    sys.modules[name], module.__name__ = module, name
    pending: list[Any] = [module]
    while pending:
        for each in vars(pending.pop()).values():
            if (inspect.isclass(each) or inspect.isfunction(each)) and each.__module__ == before:
                each.__module__ = name
                pending += [each] if inspect.isclass(each) else []


class _Twice:
    """Whose module is meant is known only while a file is loaded."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if len(found := _folders(name)) > 1:
            listed = " and in ".join(str(folder / name) for folder in found)
            raise ImportError(f"{name} is in {listed}: import it at the top of the file that needs it")


def _place(module: ModuleType) -> Path:
    """Its file, or the folder of a package without one."""
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return Path(place).resolve() if isinstance(place, str) else Path()


def _found(folder: Path, name: str, place: Path) -> bool:
    """Whether a search in a folder finds that place by that name."""
    top = name.partition(".")[0]
    return place == folder / f"{top}.py" or place.is_relative_to(folder / top)


def _owns(folder: Path, name: str, place: Path, path: set[Path]) -> bool:
    """Whether a module belongs to a folder: it is below, and neither installed there nor found by `path`."""
    if not place.is_relative_to(folder) or _is_installed(name, place, folder):
        return False
    return not any(_found(each, name, place) for each in path)


def _is_installed(name: str, place: Path, folder: Path) -> bool:
    """Whether a module is Python's, this package's, or installed: below `folder`, or for another one anywhere."""
    below = place.relative_to(folder) if place.is_relative_to(folder) else place
    known = name.partition(".")[0] in sys.stdlib_module_names or place.is_relative_to(_PRODUCT)
    return known or bool(_INSTALLED.intersection(below.parts))


def _hides(name: str, module: ModuleType, folder: Path, beside: set[str], elsewhere: set[str], path: set[Path]) -> bool:
    """Whether a loaded module would be taken for one of the folder; what is installed is not. A place costs calls."""
    top = name.partition(".")[0]
    if name in elsewhere and any(each.get(name) is module for of, each in _imported.items() if of != folder):
        # One that the path leads to is for all, unless the folder has one of that name.
        return top in beside or not any(_found(each, name, _place(module)) for each in path)
    if top not in beside or top.startswith("__") or _is_installed(name, place := _place(module), folder):
        return False
    return not _found(folder, name, place)


def words_of(error: BaseException) -> str:
    """Its message; "" for one that cannot be read: it is of others, too."""
    try:
        return str(error)
    except raised():
        return ""


def told(error: BaseException) -> str:
    """`ValueError: no such node (mine.py, line 12)`: with the location, for the code's author."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if _PRODUCT not in Path(frame.filename).parents] or frames
    text = ": ".join(filter(None, (type(error).__name__, words_of(error))))
    return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else text
