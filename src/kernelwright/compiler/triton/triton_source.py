"""The generated source of a region."""

from __future__ import annotations

import msgspec

from kernelwright.core.record import Record


class TritonSource(Record, frozen=True, kw_only=True):
    """The source of a region. It needs `import torch`, `import triton`, `import triton.language as tl`,
    `from triton.language.extra import libdevice` and `from triton.runtime import driver`.

    Attributes:
        launcher_name: name of the function that launches the kernels; empty, or the region's name, where `launcher` is
            the function of the region itself, which returns new tensors.
        helpers: device functions that the kernels call; a file with several regions holds each once.
        kernels: the `@triton.jit` functions, in launch order.
        kernel_names: their names.
        scratch: dtypes of the tensors that the launcher allocates for partial results, by name.
        launcher: the Python function `launch_NAME(inputs..., outputs...)`.
        setup: lines of the region's function that compute further inputs of the launcher.
        launcher_reads: the inputs of the launcher; empty for what the region reads.
    """

    launcher_name: str = ""
    helpers: tuple[str, ...] = ()
    kernels: str = ""
    kernel_names: tuple[str, ...] = ()
    scratch: dict[str, str] = msgspec.field(default_factory=dict)
    launcher: str
    setup: tuple[str, ...] = ()
    launcher_reads: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """All device code."""
        return "\n\n".join([*self.helpers, self.kernels])
