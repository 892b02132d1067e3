"""What launches a kernel of Triton and takes memory for it, as text."""

LAUNCHER_TEMPLATE = '''def starter(kernel, programs, warps, together=1):
    """What launches a kernel. Triton looks at its arguments the first time, where memory is not aligned
    and where it lies on another device; what it has compiled is otherwise launched as it is, in a
    quarter of the time. `together` programs wait for each other and have to run at once."""
    known = {}

    def start(*tensors):
        pointers = [tensor.data_ptr() for tensor in tensors]
        aligned = not any([pointer % 16 for pointer in pointers])
        device = tensors[0].get_device()
        if aligned and device in known and device == torch._C._cuda_getDevice():
            run, stream_of, about = known[device]
            run(programs, 1, 1, stream_of(device), *about, *pointers)
            return
        if together > 1 and together > (there := processors_of(device)):
            raise RuntimeError(
                f"{together} programs wait for each other, and this GPU has {there} multiprocessors: "
                "these kernels are for a larger one; optimize the program again on this one"
            )
        with torch.cuda.device(device):
            compiled = kernel[(programs,)](*tensors, num_warps=warps)
        if aligned and compiled:
            known[device] = as_it_is(compiled)

    return start


def processors_of(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def as_it_is(compiled):
    """What launches it, the stream on a device, and what it takes behind that, past the launcher's
    own Python in the Triton in which that does nothing more."""
    run, function, last = compiled.run, compiled.function, (compiled.packed_metadata, None, None, None)
    known = triton.__version__.startswith("3.6.")
    if not known or run.global_scratch_size or run.profile_scratch_size:
        return run, driver.active.get_current_stream, (function, *last)
    about = function, run.launch_cooperative_grid, run.launch_pdl, None, None, *last
    return run.launch, driver.active.get_current_stream, about


def memory_beside(tensor, shape, strides, dtype=None):
    """A new tensor where another lies, of its dtype if none is given: on the device that is current as
    torch's own compiled programs take theirs, in two thirds of the time."""
    if empty_here and tensor.is_cuda and tensor.get_device() == torch._C._cuda_getDevice():
        return empty_here(shape, strides, dtype or tensor.dtype)
    return tensor.new_empty_strided(shape, strides, dtype=dtype)


empty_here = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
'''
"""A file holds it once."""
