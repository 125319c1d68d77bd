"""Link what a kernel calls into the kernel, and optimize it only there.

Numba treats each function as a separate library: it optimizes it with everything that it calls, generates
machine code and two wrappers, and then repeats all of that in each caller. Here, a function that kernels call
remains unoptimized LLVM code until it is part of a kernel, which takes half of the time. It is also compiled
once for all numbers, where numba would compile it again for each literal.

This relies on parts of numba that it does not document. So it is done only for versions of numba whose code
was read (``TESTED``); all others compile as numba does, with the same results.
"""

from typing import Any, Final

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

TESTED: Final = (0, 68)
"""The version of numba that this file was written for, without its last part."""

_OPTIONS: Final[dict[str, Any]] = {"nopython": True, "boundscheck": None, "nogil": True}


def is_supported() -> bool:
    """Return whether functions are linked: whether this is the version of numba that was tested."""
    return tuple(numba.version_info[:2]) == TESTED


class _Library(JITCodeLibrary):
    """LLVM code that is never run, only linked into other libraries."""

    def _optimize_final_module(self) -> None:
        """Leave that to the library that this one is linked into."""

    def _finalize_final_module(self) -> None:
        """Generate no machine code."""
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(NativeLowering):
    """Generates the LLVM code of a function that is linked."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        """Generate the code, and register it for callers."""
        codegen, name = state.targetctx.codegen(), state.func_id.func_qualname
        state.library = _Library(codegen, name)  # type: ignore[no-untyped-call]
        state.flags.no_compile = True  # no machine code
        super().run_pass(state)  # type: ignore[no-untyped-call]
        entry = object()  # only identifies the function: it has no address
        state.targetctx.insert_user_function(entry, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=entry)
        return True


class _Compiler(CompilerBase):
    """Numba's compiler with another last step."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        builder: Any = DefaultPassBuilder
        passes = builder.define_nopython_pipeline(self.state)
        steps = [
            (_Lowering if step is NativeLowering else step, text) for step, text in passes.passes
        ]
        passes.passes = steps
        passes._finalized = False  # noqa: SLF001 - the passes have changed
        passes.finalize()
        return [passes]


class LinkedFunction(CPUDispatcher):
    """A function that is compiled for kernels only; ``options`` are as in ``numba.njit``."""

    def __init__(self, function: Any, **options: bool) -> None:
        wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        options = {**_OPTIONS, **wrappers, **options}
        super().__init__(function, targetoptions=options, pipeline_class=_Compiler)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the Python function: it has no machine code."""
        return self.py_func(*args, **keywords)

    def add_overload(self, cres: Any) -> None:
        """Store a compiled version for callers, but not for calls from Python."""
        self.overloads[tuple(cres.signature.args)] = cres

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return how to call the function with arguments of some types, literals as other values."""
        plain: Any = types.unliteral
        keywords = {name: plain(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(map(plain, args)), keywords)


class LinkingKernel(CPUDispatcher):
    """A function that Python calls; in other kernels it is linked as any other function."""

    def __init__(self, function: Any, **options: bool) -> None:
        wrappers = {"no_cfunc_wrapper": True} if is_supported() else {}
        super().__init__(function, targetoptions={**_OPTIONS, **wrappers, **options})
        self._linked = LinkedFunction(function, **options) if is_supported() else None

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return how a kernel calls the function."""
        if self._linked is None:
            return super().get_call_template(args, kws)
        return self._linked.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return what identifies the version for a signature, for a call by a kernel."""
        return super().get_overload(sig) if self._linked is None else self._linked.get_overload(sig)
