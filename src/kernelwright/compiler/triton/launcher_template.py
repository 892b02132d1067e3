"""Source of the functions that launch kernels and allocate tensors in generated files."""

LAUNCHER_TEMPLATE = '''def make_launcher(kernel, num_programs, num_warps, resident_programs=1, **options):
    """Returns a function that launches a kernel. The first launch, unaligned memory and tensors on
    another device go through Triton; other launches reuse the compiled kernel, in a quarter of the
    time. `resident_programs` programs wait for each other and have to be resident at once; `options`
    are those of Triton."""
    cached = {}

    def launch(*tensors):
        pointers = [tensor.data_ptr() for tensor in tensors]
        aligned = not any([pointer % 16 for pointer in pointers])
        device = tensors[0].get_device()
        if aligned and device in cached and device == torch._C._cuda_getDevice():
            run, get_stream, launch_args = cached[device]
            run(num_programs, 1, 1, get_stream(device), *launch_args, *pointers)
            return
        if resident_programs > 1 and resident_programs > (num_sms := num_sms_of(device)):
            raise RuntimeError(
                f"{resident_programs} programs have to be resident at once, but this GPU has "
                f"{num_sms} multiprocessors: run kw optimize again on this GPU"
            )
        with torch.cuda.device(device):
            compiled = kernel[(num_programs,)](*tensors, num_warps=num_warps, **options)
        if aligned and compiled:
            cached[device] = direct_launch(compiled)

    return launch


def num_sms_of(device):
    """The number of multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def direct_launch(compiled):
    """The launch function of a compiled kernel, the function that returns a device's stream, and
    the arguments after the stream. In Triton 3.6 it bypasses the launcher's Python code."""
    run, function = compiled.run, compiled.function
    trailing_args = compiled.packed_metadata, None, None, None
    is_known_version = triton.__version__.startswith("3.6.")
    if not is_known_version or run.global_scratch_size or run.profile_scratch_size:
        return run, driver.active.get_current_stream, (function, *trailing_args)
    launch_args = function, run.launch_cooperative_grid, run.launch_pdl, None, None, *trailing_args
    return run.launch, driver.active.get_current_stream, launch_args


def empty_on_device_of(tensor, shape, strides, dtype=None):
    """A new tensor on the device of another, by default of its dtype. On the current device it uses
    the allocator of torch's compiled programs, in two thirds of the time."""
    if empty_strided_cuda and tensor.is_cuda and tensor.get_device() == torch._C._cuda_getDevice():
        return empty_strided_cuda(shape, strides, dtype or tensor.dtype)
    return tensor.new_empty_strided(shape, strides, dtype=dtype)


empty_strided_cuda = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
'''
"""Each generated file holds it once."""
