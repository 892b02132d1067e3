"""What the library of kernels holds, as `kw kernels` lists it, and how fast its members were seen to be."""

from __future__ import annotations

from kernelwright.core.records import Record

FP32_ROUNDING = 2**-24
OURS, EAGER, TORCH_COMPILE = "kernelwright", "eager", "torch.compile"


class LibraryKernel(Record, frozen=True, kw_only=True):
    """One kernel for people who call it.

    Attributes:
        import_path: where it is imported from.
        variants: what of it compiles by itself: `kw sass kernels/NAME:VARIANT`.
        dtypes: of its tensors.
        constraints: what it does not take.
        evidence: the record behind its speed; empty where it was not measured yet.
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
    """All of them."""

    kernels: tuple[LibraryKernel, ...]


class VariantResult(Record, frozen=True, kw_only=True):
    """One program for the work of a row.

    Attributes:
        time_us: of one call in a CUDA graph of many, the median with its interval; None where it fails.
        call_us: of one call from Python, where that is more than the kernel's own time.
        errors: of each result, rms against FP64 as a share of the result's; empty where results are random.
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
    """A use of a kernel on one size in bfloat16: ours first, then everybody else's, and a copy of as many bytes."""

    use_case: str
    size: tuple[int, ...]
    bytes: int
    copy_us: float
    variants: tuple[VariantResult, ...]

    @property
    def ours(self) -> VariantResult:
        return self.variants[0]

    @property
    def best_other(self) -> VariantResult:
        """The fastest that is not ours."""
        return min((one for one in self.variants[1:] if one.time_us), key=lambda one: one.time_us or 0.0)

    @property
    def speedup(self) -> float:
        """How many times as fast as the best of the others."""
        return (self.best_other.time_us or 0.0) / (self.ours.time_us or 1.0)

    @property
    def fraction_of_copy_speed(self) -> float:
        """The copy's time as a share of ours."""
        return self.copy_us / (self.ours.time_us or 1.0)

    @property
    def error_over_eager(self) -> float | None:
        """Our largest error over eager's own of the same result, which is a rounding of FP32 at least."""
        eager = next((one.errors for one in self.variants if one.name == EAGER), ())
        pairs = zip(self.ours.errors, eager, strict=False)
        return max((a / max(b, FP32_ROUNDING) for a, b in pairs), default=None)
