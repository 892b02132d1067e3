"""Records of the kernel library, as `kw kernels` lists it, and of its measured times."""

from __future__ import annotations

from kernelwright.core.record import Record

FP32_ROUNDING = 2**-24
OURS, EAGER, TORCH_COMPILE = "kernelwright", "eager", "torch.compile"


class LibraryKernel(Record, frozen=True, kw_only=True):
    """One kernel of the library.

    Attributes:
        import_path: the module or name to import.
        variants: variants that `kw sass kernels/NAME:VARIANT` compiles.
        dtypes: supported dtypes.
        constraints: unsupported arguments.
        evidence: the record of its measured times; empty if not measured yet.
    """

    name: str
    description: str
    import_path: str
    variants: tuple[str, ...]
    dtypes: tuple[str, ...]
    constraints: str
    source: str
    evidence: str = ""


class KernelLibrary(Record, frozen=True, kw_only=True):
    """All kernels of the library."""

    kernels: tuple[LibraryKernel, ...]


class VariantResult(Record, frozen=True, kw_only=True):
    """One variant of a row.

    Attributes:
        time_us: median time of one call in a CUDA graph of many, with `low_us` and `high_us`; None if it fails.
        call_us: time of one call from Python, if longer than the kernel's time.
        errors: rms error against FP64 relative to the rms of each result; empty if results are random.
        failure: why it does not run.
    """

    name: str
    time_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    call_us: float | None = None
    errors: tuple[float, ...] = ()
    failure: str = ""


class KernelRow(Record, frozen=True, kw_only=True):
    """A kernel on one size in bfloat16: our variant first, then the others, and a copy of as many bytes."""

    use_case: str
    size: tuple[int, ...]
    bytes: int
    copy_us: float
    variants: tuple[VariantResult, ...]
    flops: int = 0

    @property
    def ours(self) -> VariantResult:
        return self.variants[0]

    @property
    def best_other(self) -> VariantResult:
        """The fastest other variant."""
        return min((one for one in self.variants[1:] if one.time_us), key=lambda one: one.time_us or 0.0)

    @property
    def speedup(self) -> float:
        """Time of the fastest other variant over ours."""
        return (self.best_other.time_us or 0.0) / (self.ours.time_us or 1.0)

    @property
    def fraction_of_copy_speed(self) -> float:
        """Time of the copy over ours."""
        return self.copy_us / (self.ours.time_us or 1.0)

    @property
    def error_over_eager(self) -> float | None:
        """Largest error of a result over eager's error of it, which counts as one FP32 rounding at least."""
        eager = next((one.errors for one in self.variants if one.name == EAGER), ())
        pairs = zip(self.ours.errors, eager, strict=False)
        return max((a / max(b, FP32_ROUNDING) for a, b in pairs), default=None)
