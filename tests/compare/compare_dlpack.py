#!/usr/bin/env python3
"""Passes arrays between tapegrad, NumPy and PyTorch through DLPack, and checks that nothing is
copied, that memory lives as long as it is needed, and that gradients are right.

    tests/compare/compare_dlpack.py [--build build/release]

The shared library is linked from the build's static one. A library that is not installed is skipped
with a message. The exit status is 1 if anything differs.
"""
import argparse
import ctypes
import gc
import importlib
import pathlib
import subprocess
import sys
import tempfile
import weakref

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME, USED = b"dltensor_versioned", b"used_dltensor_versioned"


class Tensor(ctypes.Structure):
    _fields_ = [("node", ctypes.c_void_p), ("gen", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    """The part of tp_dlpack that is needed here."""


Managed._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                    ("context", ctypes.c_void_p),
                    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed)))]

capsules = ctypes.pythonapi
capsules.PyCapsule_New.restype = ctypes.py_object
capsules.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsules.PyCapsule_GetPointer.restype = ctypes.c_void_p
capsules.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsules.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsules.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]


def load(build, folder):
    """libtapegrad.so from the objects of libtapegrad.a."""
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DBUILD_SHARED_LIBS=ON",
                    "-DTAPEGRAD_CUDA=OFF", "-DTAPEGRAD_MPI=OFF", "-DTAPEGRAD_TESTS=OFF",
                    "-DTAPEGRAD_EXAMPLES=OFF", "-DTAPEGRAD_BENCH=OFF",
                    f"-DTAPEGRAD_ARCHIVES={build}"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "tapegrad"], check=True,
                   stdout=subprocess.DEVNULL)
    # PyDLL keeps the interpreter's lock: a deleter of Python's objects may run in any call.
    library = ctypes.PyDLL(str(next(folder.glob("libtapegrad.so"))))
    pointer = ctypes.c_void_p
    for name, result, arguments in (
            ("tp_device_open", pointer, (ctypes.c_char_p, pointer)),
            ("tp_device_close", None, (pointer,)),
            ("tp_tape_new", pointer, (pointer, pointer)),
            ("tp_tape_free", None, (pointer,)),
            ("tp_reset", None, (pointer,)),
            ("tp_why", ctypes.c_char_p, (pointer,)),
            ("tp_clear", None, (pointer,)),
            ("tp_mul", Tensor, (pointer, Tensor, Tensor)),
            ("tp_mean", Tensor, (pointer, Tensor, ctypes.c_int)),
            ("tp_backward", None, (pointer, Tensor)),
            ("tp_grad", Tensor, (pointer, Tensor)),
            ("tp_to_dlpack", pointer, (pointer, Tensor)),
            ("tp_from_dlpack", Tensor, (pointer, pointer)),
            ("tp_input_dlpack", Tensor, (pointer, pointer))):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Exported:
    """What from_dlpack of the other libraries takes."""

    def __init__(self, library, tape, tensor):
        self.pointer = library.tp_to_dlpack(tape, tensor)
        assert self.pointer, library.tp_why(tape)

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert max_version and max_version[0] >= 1, "a consumer of DLPack 1.x"
        return capsules.PyCapsule_New(self.pointer, NAME, None)


def imported(take, tape, array):
    capsule = array.__dlpack__(max_version=(1, 0))
    assert capsules.PyCapsule_IsValid(capsule, NAME), "a producer of DLPack 1.x"
    pointer = capsules.PyCapsule_GetPointer(capsule, NAME)
    capsules.PyCapsule_SetName(capsule, USED)
    return take(tape, pointer)


class Session:
    def __init__(self, library):
        self.c = library
        self.device = library.tp_device_open(b"cpu", None)
        self.tape = library.tp_tape_new(self.device, None)

    def fine(self):
        assert self.c.tp_why(self.tape) == b"", self.c.tp_why(self.tape)

    def end(self):
        self.c.tp_tape_free(self.tape)
        self.c.tp_device_close(self.device)


def numpy_both_ways(library):
    for kind in ("f4", "f8", "i4", "i8", "u1", "?"):
        s = Session(library)
        x = np.arange(6).reshape(2, 3).astype(kind)
        gone = weakref.ref(x)
        t = imported(library.tp_from_dlpack, s.tape, x)
        s.fine()
        back = np.from_dlpack(Exported(library, s.tape, t))
        assert back.ctypes.data == x.ctypes.data and back.shape == (2, 3), kind
        assert np.array_equal(back, x) and not back.flags.writeable, kind
        del x
        library.tp_reset(s.tape)
        s.end()
        gc.collect()
        assert gone() is not None and back[1, 2] == (1 if kind == "?" else 5), "the export keeps it"
        del back
        gc.collect()
        assert gone() is None, "the last of both lets it go"
    return "NumPy: 6 dtypes both ways"


def numpy_refusals(library):
    s = Session(library)
    x = np.zeros((4, 6), "f4")
    for array, why in ((x.T, b"strides [1,6]"), (x[:, ::2], b"strides [6,2]"),
                       (x.astype("f2"), b"float16"), (x.astype("c8"), b"complex64")):
        gone = weakref.ref(array)
        imported(library.tp_from_dlpack, s.tape, array)
        assert why in library.tp_why(s.tape), library.tp_why(s.tape)
        library.tp_clear(s.tape)
        del array
    s.end()
    return "4 refusals"


def gradient(library, module, make, read):
    """The gradient of the mean of x x for another library's x, read by that library."""
    s = Session(library)
    values = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)
    x = make(values)
    t = imported(library.tp_input_dlpack, s.tape, x)
    rows = library.tp_mean(s.tape, library.tp_mul(s.tape, t, t), -1)
    loss = library.tp_mean(s.tape, rows, -1)
    library.tp_backward(s.tape, loss)
    s.fine()
    g = module.from_dlpack(Exported(library, s.tape, library.tp_grad(s.tape, t)))
    s.fine()
    del x
    s.end()
    gc.collect()
    difference = np.abs(read(g) - 2 * values / 12).max()
    assert difference < 1e-7, difference
    return difference


def torch_dtypes(library, torch):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64,
                  torch.uint8):
        s = Session(library)
        x = torch.arange(6).reshape(2, 3).to(dtype)
        t = imported(library.tp_from_dlpack, s.tape, x)
        s.fine()
        back = torch.from_dlpack(Exported(library, s.tape, t))
        assert back.data_ptr() == x.data_ptr() and back.dtype == dtype, dtype
        del x
        s.end()
        gc.collect()
        assert torch.equal(back, torch.arange(6).reshape(2, 3).to(dtype)), dtype
    return "6 dtypes both ways"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory() as folder:
        library = load(build, pathlib.Path(folder))
        print(f"{numpy_both_ways(library)}, {numpy_refusals(library)}, gradient off by "
              f"{gradient(library, np, lambda x: x, np.asarray):.1g}")
        try:
            torch = importlib.import_module("torch")
        except ImportError as missing:
            print(f"PyTorch is skipped: {missing}")
            return
        print(f"PyTorch: {torch_dtypes(library, torch)}, gradient off by "
              f"{gradient(library, torch, torch.from_numpy, lambda g: g.numpy()):.1g}")


if __name__ == "__main__":
    main()
