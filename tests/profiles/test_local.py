"""The GPUs of this machine, read from a fake NVML: an object with the few functions of ``pynvml`` that are used."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from roofline.errors import InputError, MissingError
from roofline.profiles import Gpu, choose, gpus


class NVMLError(Exception):
    """What every NVML call raises."""


@dataclass
class FakeGpu:
    uuid: str
    name: str | bytes = "NVIDIA H200"
    memory_bytes: int | None = 150754820096
    lost: bool = False


@dataclass
class FakeNvml:
    gpus: list[FakeGpu] = field(default_factory=list)
    slices: list[FakeGpu] = field(default_factory=list)
    driver: bool = True
    shutdowns: int = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        if self.gpus[index].lost:
            raise NVMLError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        for gpu in self.slices:
            if gpu.uuid == uuid:
                return gpu
        raise NVMLError("Not Found")

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str | bytes:
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        if gpu.memory_bytes is None:
            raise NVMLError("Not Supported")
        return SimpleNamespace(total=gpu.memory_bytes)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: FakeGpu) -> tuple[int, int]:
        return (9, 0)


UUIDS = ["GPU-aa000000-0000", "GPU-ab000000-1111", "GPU-b0000000-2222", "GPU-c0000000-3333"]


def four() -> FakeNvml:
    return FakeNvml([FakeGpu(uuid) for uuid in UUIDS], slices=[FakeGpu("MIG-77", "NVIDIA H200 MIG 1g.18gb", 17 * 2**30)])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, UUIDS),
        ("", []),
        ("0", UUIDS[:1]),
        ("3,1", [UUIDS[3], UUIDS[1]]),
        (" 2 , 0 ", [UUIDS[2], UUIDS[0]]),
        ("1,-1,2", [UUIDS[1]]),
        ("1,9,2", [UUIDS[1]]),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,1", []),
        ("1,GPU-ab", []),
        ("GPU-b0", [UUIDS[2]]),
        ("GPU-a", []),
        (UUIDS[3], [UUIDS[3]]),
        ("99999999999999999999", []),
        ("MIG-77", ["MIG-77"]),
        ("MIG-78", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(spec: str | None, expected: list[str]) -> None:
    found = gpus(four(), {} if spec is None else {"CUDA_VISIBLE_DEVICES": spec})
    assert [gpu.uuid for gpu in found] == expected
    assert [gpu.index for gpu in found] == list(range(len(expected)))


def test_a_gpu_is_read_whole() -> None:
    nvml = FakeNvml([FakeGpu("GPU-1", b"NVIDIA H200")])
    assert gpus(nvml, {}) == (Gpu(0, "GPU-1", "NVIDIA H200", 150754820096, "9.0"),)
    assert nvml.shutdowns == 1


def test_no_driver_is_no_gpu() -> None:
    assert gpus(FakeNvml(driver=False), {}) == ()


def test_a_library_of_another_make_is_no_gpu() -> None:
    assert gpus(object(), {}) == ()


def test_a_lost_gpu_leaves_the_others() -> None:
    assert [gpu.uuid for gpu in gpus(FakeNvml([FakeGpu("GPU-1", lost=True), FakeGpu("GPU-2")]), {})] == ["GPU-2"]


def test_memory_that_the_driver_does_not_report_is_unknown() -> None:
    assert gpus(FakeNvml([FakeGpu("GPU-1", memory_bytes=None)]), {})[0].memory_bytes is None


@pytest.mark.parametrize(
    ("wanted", "index"), [(None, 0), ("0", 0), ("3", 3), ("03", 3), ("GPU-b", 2), ("gpu-B0000000-2222", 2), (UUIDS[1], 1)]
)
def test_a_gpu_is_chosen_by_index_or_uuid(wanted: str | None, index: int) -> None:
    assert choose(wanted, gpus(four(), {})).index == index


@pytest.mark.parametrize("wanted", ["4", "-1", "", "GPU-z", "H200", "²"])
def test_a_gpu_that_is_not_there_is_refused_with_a_list(wanted: str) -> None:
    with pytest.raises(InputError, match=r"^--gpu: no visible GPU is .*; expected one of 0 \(NVIDIA H200 140 GiB, GPU-aa"):
        choose(wanted, gpus(four(), {}))


def test_a_start_that_fits_two_gpus_is_refused() -> None:
    with pytest.raises(InputError, match=r"^--gpu: several GPUs fit 'GPU-a'"):
        choose("GPU-a", gpus(four(), {}))


def test_choosing_without_a_gpu_is_exit_code_3() -> None:
    with pytest.raises(MissingError, match=r"^--gpu 1: no NVIDIA GPU is visible here"):
        choose("1", ())
    with pytest.raises(MissingError, match=r"^no NVIDIA GPU is visible here"):
        choose(None, ())
