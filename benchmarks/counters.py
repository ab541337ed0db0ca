"""Hardware counters of each kernel against its cost: tensor FLOPs, and what the SMs read, launch by launch.

Run on a GPU machine that lets ncu read counters:   python benchmarks/counters.py FILE [all|decode|latent|hopper]
and, under compute-sanitizer, the odd shapes once:  compute-sanitizer python benchmarks/counters.py --worker odd[-latent]

The parent profiles a worker of this same script. Both walk the same list of cases; a launch of an empty kernel between them
tells the cases apart. FILE gets one JSON line a case: request, plan, and the counters of its kernels in order.
"""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roofline.configurations import Configuration, Request, configurations
from roofline.plan import Plan, choose
from roofline.profiles import gpus, load, profile_of

COUNTERS = {
    "tensor_flops": "sm__ops_path_tensor_src_{path}.sum",
    "sm_read_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "sm_write_bytes": "l1tex__m_l1tex2xbar_write_bytes.sum",
    "hbm_read_bytes": "dram__bytes_read.sum",
    "hbm_write_bytes": "dram__bytes_write.sum",
    "time_s": "gpu__time_duration.sum",
    # By thread, for the kernels on the vector units: a fused one is two FLOPs.
    "ffma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "fadd": "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "fmul": "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
}
# Every path that some version of ncu names; the ones that are unknown here are not asked for.
PATHS = (
    "bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp8", "int8",
)  # fmt: skip
SEPARATOR = "do_nothing"

# Three shapes a kernel and more for those that many depend on; `odd`: nothing divides anything.
CASES: tuple[dict[str, Any], ...] = (
    {"variants": "naive", "n": 2048, "d": 64, "heads": 8, "kv_heads": 8},
    {"variants": "naive", "n": 1024, "d": 128, "heads": 8, "kv_heads": 2, "batch": 2, "causal": True},
    {"variants": "naive", "n": 1024, "d": 64, "heads": 4, "kv_heads": 4, "naive_passes": 6},
    {"variants": "chunked", "n": 4096, "d": 64, "heads": 2, "kv_heads": 2, "chunk": (1024, 2048)},
    {"variants": "chunked", "n": 4096, "d": 128, "heads": 2, "kv_heads": 1, "causal": True, "chunk": (1024, 1024)},
    {"variants": "chunked", "n": 3072, "d": 64, "heads": 2, "kv_heads": 2, "window": 500, "chunk": (512, 1024)},
    {"variants": "flash", "n": 4096, "d": 128, "heads": 8, "kv_heads": 8, "batch": 2},
    {"variants": "flash", "n": 4096, "d": 128, "heads": 8, "kv_heads": 8, "batch": 2, "causal": True},
    {"variants": "flash", "n": 4096, "d": 64, "heads": 8, "kv_heads": 2, "window": 1000},
    {"variants": "flash", "n": 2048, "d": 256, "heads": 4, "kv_heads": 1, "causal": True},
    {"variants": "flash", "n": 2000, "d": 128, "dv": 64, "heads": 4, "kv_heads": 4},
    {"variants": "flash", "n": 2048, "d": 64, "heads": 4, "kv_heads": 4, "dtype": "fp16", "causal": True},
    {"variants": "mla/expanded", "n": 2048, "d": 128, "heads": 8, "causal": True},
    {"variants": "mla/expanded", "n": 2048, "d": 128, "heads": 4},
    {"variants": "mla/expanded", "n": 1536, "d": 64, "heads": 4, "latent_dim": 256, "window": 300},
    {"variants": "split-kv", "decode": True, "kv_len": 8192, "d": 128, "heads": 32, "kv_heads": 8, "batch": 4},
    {"variants": "split-kv", "decode": True, "kv_len": 65536, "d": 128, "heads": 8, "kv_heads": 1},
    {"variants": "split-kv", "q_len": 4, "kv_len": 4096, "d": 64, "heads": 16, "kv_heads": 4, "batch": 8, "causal": True},
    {"variants": "split-kv", "decode": True, "kv_lens": (512, 4096, 16384, 1000), "d": 128, "heads": 32, "kv_heads": 8},
    {"variants": "split-kv", "decode": True, "kv_len": 8192, "d": 128, "heads": 32, "kv_heads": 8, "batch": 4, "window": 1024},
    {"variants": "paged", "decode": True, "kv_len": 8192, "d": 128, "heads": 32, "kv_heads": 8, "batch": 4},
    {"variants": "paged", "decode": True, "kv_len": 4096, "d": 128, "heads": 32, "kv_heads": 8, "batch": 4, "page_size": 256},
    {"variants": "paged", "decode": True, "kv_len": 4096, "d": 128, "heads": 16, "kv_heads": 8, "batch": 4, "page_size": 1},
    {"variants": "mla/absorbed", "decode": True, "kv_len": 4096, "d": 128, "heads": 128, "batch": 8},
    {"variants": "mla/absorbed", "decode": True, "kv_len": 8192, "d": 128, "heads": 16, "batch": 4},
    {"variants": "mla/absorbed", "q_len": 2, "kv_len": 1024, "d": 128, "heads": 16, "batch": 132, "causal": True},
    {"variants": "mla/absorbed", "q_len": 2, "kv_len": 4096, "d": 128, "heads": 64, "batch": 2, "causal": True},
    {"variants": "linear/chunked", "n": 4096, "d": 128, "heads": 8, "kv_heads": 8, "causal": True},
    {"variants": "linear/chunked", "n": 4096, "d": 64, "heads": 16, "kv_heads": 4, "causal": True},
    {"variants": "linear/chunked", "n": 4096, "d": 128, "heads": 8, "kv_heads": 8},
    {"variants": "linear/recurrent", "decode": True, "kv_len": 4096, "d": 128, "heads": 32, "kv_heads": 8, "batch": 8},
    {"variants": "linear/recurrent", "decode": True, "kv_len": 4096, "d": 64, "heads": 16, "kv_heads": 16, "batch": 32},
    {"variants": "linear/recurrent", "q_len": 4, "kv_len": 4096, "d": 128, "heads": 16, "kv_heads": 16, "batch": 4},
    {"variants": "split-kv", "decode": True, "kv_len": 8192, "d": 128, "kv_heads": 8, "batch": 4, "kv_dtype": "fp8"},
    {"variants": "split-kv", "decode": True, "kv_len": 8192, "d": 128, "kv_heads": 8, "batch": 4, "kv_dtype": "int8"},
    {"variants": "paged", "decode": True, "kv_len": 4096, "d": 128, "heads": 32, "kv_heads": 8, "batch": 4, "kv_dtype": "fp8"},
    {"variants": "flash", "n": 2048, "d": 96, "heads": 4, "kv_heads": 4, "causal": True},
    {"variants": "flash", "n": 1024, "d": 64, "heads": 2, "kv_heads": 2, "dtype": "fp32"},
)  # fmt: skip
ODD: tuple[dict[str, Any], ...] = (
    {"variants": "naive", "n": 333, "d": 72, "heads": 3, "kv_heads": 1, "causal": True},
    {"variants": "naive", "q_len": 77, "kv_len": 333, "d": 40, "heads": 2, "kv_heads": 2, "naive_passes": 6},
    {"variants": "chunked", "n": 777, "d": 72, "heads": 3, "kv_heads": 3, "causal": True, "chunk": (100, 300)},
    {"variants": "flash", "n": 777, "d": 72, "dv": 40, "heads": 6, "kv_heads": 2, "batch": 2, "causal": True},
    {"variants": "flash", "q_len": 300, "kv_lens": (1, 999, 130), "d": 128, "heads": 4, "kv_heads": 2, "window": 77},
    {"variants": "mla/expanded", "n": 333, "d": 72, "heads": 3, "latent_dim": 100, "rope_dim": 24, "causal": True},
    {"variants": "split-kv", "q_len": 3, "kv_lens": (1, 0, 999, 5000), "d": 72, "heads": 6, "kv_heads": 2, "causal": True},
    {"variants": "split-kv", "q_len": 3, "kv_lens": (1, 999, 5000), "d": 72, "heads": 6, "kv_heads": 2, "kv_dtype": "int8"},
    {"variants": "paged", "q_len": 3, "kv_lens": (1, 0, 999, 5000), "d": 72, "heads": 6, "kv_heads": 2, "page_size": 5},
    {"variants": "paged", "decode": True, "kv_lens": (1, 999, 5000), "d": 128, "heads": 6, "kv_heads": 2, "kv_dtype": "fp8"},
    {"variants": "mla/absorbed", "q_len": 3, "kv_lens": (1, 999, 3000), "d": 72, "heads": 5, "latent_dim": 100, "rope_dim": 24},
    {"variants": "mla/absorbed", "q_len": 3, "kv_len": 333, "d": 128, "heads": 10, "batch": 2, "causal": True},
    {"variants": "mla/absorbed", "q_len": 7, "kv_len": 60, "d": 128, "heads": 2, "batch": 3, "causal": True},
    {"variants": "mla/absorbed", "q_len": 3, "kv_len": 333, "d": 128, "heads": 50, "batch": 2, "causal": True},
    {"variants": "mla/absorbed", "q_len": 3, "kv_len": 60, "d": 128, "heads": 50, "batch": 2, "dtype": "fp16"},
    {"variants": "linear/chunked", "n": 333, "d": 72, "dv": 40, "heads": 6, "kv_heads": 2, "batch": 2, "causal": True},
    {"variants": "linear/recurrent", "q_len": 3, "kv_len": 333, "d": 72, "dv": 40, "heads": 6, "kv_heads": 2, "batch": 2},
)  # fmt: skip


DECODE = tuple(case for case in CASES if case["variants"] in ("split-kv", "paged", "linear/recurrent"))
# The Hopper kernel of flash attention: warp groups that skip kv tiles, or lie past the end; q tiles cut by it; windows.
HOPPER: tuple[dict[str, Any], ...] = (
    {"variants": "flash", "n": 2048, "d": 64, "heads": 4, "kv_heads": 4},
    {"variants": "flash", "n": 4096, "d": 64, "heads": 4, "kv_heads": 2, "batch": 2, "causal": True},
    {"variants": "flash", "q_len": 1000, "kv_len": 3001, "d": 64, "heads": 4, "kv_heads": 2, "causal": True},
    {"variants": "flash", "n": 3000, "d": 64, "heads": 4, "kv_heads": 2, "window": 500},
    {"variants": "flash", "n": 4096, "d": 128, "heads": 8, "kv_heads": 8, "causal": True},
    {"variants": "flash", "n": 3000, "d": 128, "heads": 4, "kv_heads": 2, "window": 777},
    {"variants": "flash", "n": 2048, "d": 256, "heads": 4, "kv_heads": 1, "causal": True},
)  # fmt: skip
LATENT = tuple(case for case in CASES if case["variants"] == "mla/absorbed")
ODD_LATENT = tuple(case for case in ODD if case["variants"] == "mla/absorbed")
LISTS = {
    "all": CASES, "decode": DECODE, "latent": LATENT, "hopper": HOPPER, "odd": ODD, "odd-latent": ODD_LATENT,
}  # fmt: skip


def configuration_of(options: dict[str, Any]) -> Configuration:
    """The one configuration that a case names."""
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if fields.pop("decode", False):
        fields |= {"q_len": 1, "phase": "decode"}
    elif "phase" not in fields and "q_len" not in fields:
        fields["phase"] = "prefill"
    (first, *_) = configurations(Request(**fields | {"variants": (fields["variants"],)}))
    return first


def planned(cases: tuple[dict[str, Any], ...]) -> Iterator[tuple[dict[str, Any], Configuration, Plan]]:
    """Each case with its configuration and the plan for the GPU here (an H200 where there is none)."""
    present = gpus()
    profile = profile_of(present[0]) if present else load("h200-sxm-141gb")
    for options in cases:
        found = configuration_of(options)
        yield options, found, choose(found.variant, f"roofline/{found.variant}", found.problem, profile, found.choices)


def work(cases: tuple[dict[str, Any], ...]) -> None:
    """Run every case once between the profiler's start and stop, after a call that compiles it; check the result."""
    import torch

    from roofline.kernels import load as load_kernel
    from roofline.kernels import probes
    from roofline.kernels.reference import relative_error

    device = torch.device("cuda")
    separator = probes.empty(device).run
    separator()
    for number, (options, found, plan) in enumerate(planned(cases)):
        kernel = load_kernel(found.variant)
        reason = kernel.supports(found.problem, device, plan)
        if reason is None:
            inputs = kernel.make_inputs(found.problem, number, device)
            kernel.launch(inputs, plan)
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            out = kernel.launch(inputs, plan)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
            error = relative_error(out, kernel.reference(inputs))
            print(f"case {number} {found.name} {options} error {error:.1e}", file=sys.stderr, flush=True)
        else:
            print(f"case {number} {found.name} {options} unsupported: {reason}", file=sys.stderr, flush=True)
        torch.cuda.profiler.start()
        separator()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def known_metrics() -> set[str]:
    """Return the metrics that ncu has for this GPU, without their suffixes; print those of the tensor cores."""
    listed = subprocess.run(["ncu", "--query-metrics"], stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
    print(*(line for line in listed if "ops_path_tensor" in line), sep="\n")
    return {line.split()[0] for line in listed if "__" in line}


def metrics_of(name: str) -> list[str]:
    """Return the metrics that a counter is the sum of."""
    return [COUNTERS[name].format(path=path) for path in (PATHS if "{path}" in COUNTERS[name] else ("",))]


def profile(cases_name: str) -> str:
    """Return ncu's CSV of the worker: one row per kernel and metric column."""
    known = known_metrics()
    metrics = [metric for name in COUNTERS for metric in metrics_of(name) if not known or metric.split(".")[0] in known]
    command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--replay-mode", "kernel", "--csv"]
    command += ["--page", "raw", "--print-units", "base", "--metrics", ",".join(dict.fromkeys(metrics))]
    done = subprocess.run(
        [*command, sys.executable, __file__, "--worker", cases_name], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"ncu ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def kernels_by_case(text: str) -> list[list[dict[str, Any]]]:
    """Split ncu's rows at the separators into the kernels of each case."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))[1:]  # the second line holds the units
    cases: list[list[dict[str, Any]]] = [[]]
    for row in rows:
        if row["Kernel Name"].startswith(SEPARATOR):
            cases.append([])
            continue
        counters: dict[str, Any] = {"kernel": row["Kernel Name"]}
        for name in COUNTERS:
            values = [row.get(metric) or "0" for metric in metrics_of(name)]
            numbers = [float(value.replace(",", "")) if value[:1].isdigit() else 0.0 for value in values]  # n/a where unknown
            counters[name] = sum(numbers) * 1e-9 if name == "time_s" else int(sum(numbers))
        cases[-1].append(counters)
    return cases[:-1]


def main() -> None:
    """Profile all cases, write them, and print predicted against counted."""
    if sys.argv[1] == "--worker":
        work(LISTS[sys.argv[2]])
        return
    from roofline.variants import VARIANTS

    out, cases_name = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all"
    text = profile(cases_name)
    out.with_suffix(".csv").write_text(text)
    counted = kernels_by_case(text)
    with out.open("w") as stream:
        for (options, found, plan), kernels in zip(planned(LISTS[cases_name]), counted, strict=True):
            stream.write(json.dumps({"request": options, "plan": asdict(plan), "kernels": kernels}) + "\n")
            cost = VARIANTS[found.variant](found.problem, plan)
            flops = sum(kernel["tensor_flops"] for kernel in kernels)
            vector = sum(2 * kernel["ffma"] + kernel["fadd"] + kernel["fmul"] for kernel in kernels)
            read = sum(kernel["sm_read_bytes"] for kernel in kernels)
            predicted = sum(traffic.sm_read_bytes for launch in cost.launches for traffic in launch.traffic)
            written = sum(kernel["sm_write_bytes"] for kernel in kernels)
            to_write = sum(traffic.sm_write_bytes for launch in cost.launches for traffic in launch.traffic)
            print(
                f"{found.name:<18}{len(kernels):>3} flops {flops - cost.flops_executed:>+14} of {cost.flops_executed:>14}"
                f"  read {read - predicted:>+12} of {predicted:>12} {100 * (read / predicted - 1):+.3f} %"
                f"  write {written - to_write:>+10} of {to_write:>11}"
                f"  vector {vector / max(cost.flops_executed, 1):.3f}"
            )


if __name__ == "__main__":
    main()
