#!/usr/bin/env python3
"""The command as a user calls it: output, exit codes, files, and what it says about mistakes."""
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

MEGAMOE, FIXTURES = sys.argv[1:3]
SMALL = ["--hidden", "64", "--intermediate", "64", "--experts", "6", "--top-k", "2", "--tokens", "5"]
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "OMPI_", "PMI", "MPI_", "SLURM_")
FIELDS = {"kernel", "recipe", "execution", "ranks", "shape", "tokens", "us", "tflops", "gbps", "device", "commit",
          "date", "command"}
failures = []


def call(*args, **kwargs):
    return subprocess.run([MEGAMOE, *args], capture_output=True, text=True, timeout=120, **kwargs)


def expect(holds, what, result):
    if not holds:
        failures.append(f"{what}\n  exit {result.returncode}\n  {result.stdout}\n  {result.stderr}")


def refused(args, *parts):
    """The call fails, quickly and in words: every part stands in its message."""
    result = call(*args)
    expect(result.returncode not in (0, 1), f"{args} was accepted", result)
    for part in parts:
        expect(part in result.stderr + result.stdout, f"{args} does not say '{part}'", result)
    expect("terminate called" not in result.stderr, f"{args} crashed", result)


def launch(variables_of, ranks, *args, cores_of=None):
    """The command as `ranks` processes of a launcher, each bound to cores_of(rank); each one's result."""
    bind = lambda rank: (lambda: os.sched_setaffinity(0, cores_of(rank))) if cores_of else None
    outer = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    started = [
        subprocess.Popen([MEGAMOE, *args], env={**outer, **variables_of(rank, ranks)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=bind(rank))
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    return [subprocess.CompletedProcess(args, process.returncode, *output)
            for process, output in zip(started, outputs)]


def torchrun(rank, ranks):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"test-{os.getpid()}"}


def mpirun(rank, ranks):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(ranks), "PMIX_NAMESPACE": f"test/{os.getpid()}"}


def mpiexec(rank, ranks):
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(ranks)}


def srun(rank, ranks):
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks), "SLURM_NNODES": "1",
            "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0"}


def refused_launch(variables, args, *parts):
    (result,) = launch(lambda rank, ranks: variables, 1, *args)
    expect(result.returncode == 2, f"{variables} was accepted", result)
    for part in parts:
        expect(part in result.stderr, f"{variables}: no word of '{part}'", result)


def on_a_terminal(*args):
    """What the command writes to stderr and stdout, which are one terminal."""
    master, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen([MEGAMOE, *args], stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    text = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # how a terminal says that nobody writes any more
            part = b""
        if not part:
            break
        text += part
    os.close(master)
    return subprocess.CompletedProcess(args, process.wait(), text.decode(), "")


def tensor(path, name):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        begin, end = header[name]["data_offsets"]
        file.seek(8 + size + begin)
        return header[name]["dtype"], header[name]["shape"], file.read(end - begin)


def write_model(path, config, tensors):
    """A checkpoint folder. tensors: name to (dtype, shape, bytes)."""
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file)
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_nvfp4_model(path):
    """Qwen3-MoE with experts in NVFP4, which no recipe keeps."""
    tensors = {"model.layers.0.mlp.gate.weight": ("F32", [4, 64], struct.pack("<256f", *range(256)))}
    for expert in range(4):
        for name in ("gate_proj", "up_proj", "down_proj"):
            base = f"model.layers.0.mlp.experts.{expert}.{name}"
            tensors[base + ".weight"] = ("U8", [64, 32], bytes((expert + 37 * i) % 256 for i in range(2048)))
            tensors[base + ".weight_scale"] = ("F8_E4M3", [64, 4], bytes(48 + i % 9 for i in range(256)))
            tensors[base + ".weight_scale_2"] = ("F32", [], struct.pack("<f", 0.05))
    write_model(path, {"model_type": "qwen3_moe", "num_hidden_layers": 1, "hidden_size": 64, "moe_intermediate_size": 64,
                       "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
                       "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, tensors)


def test_note(folder):
    """What a checkpoint's weights were turned into is said by all that run them."""
    model, note = os.path.join(folder, "nvfp4"), "NVFP4 weights were dequantised to bf16"
    write_nvfp4_model(model)
    common = ["--checkpoint", model, "--tokens", "3", "--ranks", "1"]
    for command, *more in (["run"], ["verify"], ["bench", "--bandwidth", "10", "--gflops", "10"],
                           ["plan", "--bandwidth", "10", "--gflops", "10"]):
        path = os.path.join(folder, f"note-{command}.json")
        json_option = [] if command == "verify" else ["--json", path]
        result = call(command, *common, *more, *json_option)
        expect(result.returncode == 0, f"{command} of an NVFP4 layer failed", result)
        expect(result.stdout.count("note: " + note) == 1, f"{command} does not say the note once", result)
        if json_option and os.path.exists(path):
            document = json.load(open(path))
            for record in document if isinstance(document, list) else [document]:
                expect(note in record.get("note", ""), f"the JSON of {command} has no note", result)
        elif json_option:
            expect(False, f"{command} wrote no JSON", result)


with tempfile.TemporaryDirectory() as folder:
    test_note(folder)
    y, figures = os.path.join(folder, "y.safetensors"), os.path.join(folder, "run.json")
    fixture = os.path.join(FIXTURES, "gpt_oss")
    source = ["--checkpoint", fixture, "--layer", "0", "--input", os.path.join(fixture, "expected.safetensors")]

    result = call("run", *source, "--ranks", "4", "--output", y, "--json", figures)
    expect(result.returncode == 0 and "right" in result.stdout, "the main job failed", result)
    dtype, shape, values = tensor(y, "output")
    _, _, expected = tensor(os.path.join(fixture, "expected.safetensors"), "output")
    expect((dtype, shape) == ("F32", [23, 160]), f"output is {dtype} {shape}", result)
    a = struct.unpack(f"<{len(values) // 4}f", values)
    b = struct.unpack(f"<{len(expected) // 4}f", expected)
    error = (sum((p - q) ** 2 for p, q in zip(a, b)) / sum(q * q for q in b)) ** 0.5
    expect(error < 6e-3, f"relative L2 {error}", result)
    document = json.load(open(figures))
    expect(document["check"]["passed"] and len(document["ranks"]) == 4, "the JSON is incomplete", result)
    expect(sum(rank["tokens"] for rank in document["ranks"]) == 23, "tokens were lost", result)

    result = call("run", *SMALL, "--ranks", "2", "--execution", "split", "--explain")
    expect(result.returncode == 0 and "GEMM-2 input" in result.stdout, "split with a plan failed", result)
    result = call("run", *SMALL[:-2], "--tokens", "0", "--ranks", "3")
    expect(result.returncode == 0, "zero tokens failed", result)
    result = call("verify", *SMALL, "--ranks", "2")
    expect(result.returncode == 0 and result.stdout.count("right") >= 3, "verify failed", result)
    for command in ("run", "verify", "bench", "plan", "doctor"):
        result = call(command, "--help")
        expect(result.returncode == 0 and "Examples" in result.stdout, f"{command}: help has no examples", result)

    # plan: what it says is what the layer has; given rates are taken.
    document_of = lambda path: json.load(open(path))
    figures = os.path.join(folder, "plan.json")
    rates = ["--bandwidth", "20", "--gflops", "100"]
    result = call("plan", *SMALL, "--ranks", "3", "--block-rows", "64", *rates, "--json", figures)
    expect(result.returncode == 0 and "GEMM-2 input" in result.stdout, "plan failed", result)
    expect("read bandwidth 20.0 GB/s, f32 100 GFLOP/s" in result.stdout, "given rates are not used", result)
    document = document_of(figures)
    decision = document["decisions"]["block rows"]
    expect(decision == {"value": "64", "by": "user", "heuristic": "16"}, f"block rows: {decision}", result)
    expect(document["decisions"]["workers"]["by"] == "heuristic", "workers are not the heuristic's", result)
    regions = sum(document["arena_regions"].values())
    expect(0 <= document["arena_bytes"] - regions < 12000, "the regions are not the arena", result)
    prediction = document["prediction"]
    expect(prediction["flops"] == 6 * 64 * 64 * 15 * 3, f"flops {prediction['flops']}", result)
    us = max(prediction["weight_bytes"] / 20e3, prediction["flops"] / 100e3)
    expect(abs(prediction["us"] / us - 1) < 1e-9, f"the bound is {prediction['us']}, not {us}", result)
    result = call("plan", *SMALL)
    expect(result.returncode == 0 and "GFLOP/s (" in result.stdout, "plan without rates failed", result)
    result = call("plan", "--preset", "deepseek-v4-pro", "--ranks", "16", "--tokens", "4k", *rates)
    expect(result.returncode == 0, "the plan of a large layer failed", result)

    result = call("doctor")
    expect(result.returncode == 0 and "The main job can run." in result.stdout, "doctor finds this host ill", result)
    expect("\033[" not in result.stdout, "colours without a terminal", result)
    result = on_a_terminal("doctor")
    expect("\033[32mfine" in result.stdout, "no colours on a terminal", result)

    # bench: rows for every point, records that add up, a picture.
    records, picture = os.path.join(folder, "bench.json"), os.path.join(folder, "bench.svg")
    sweep = ["bench", *SMALL[:-2], "--ranks", "2", "--calls", "3", *rates, "--json", records]
    result = call(*sweep, "--tokens", "1,8", "--execution", "all", "--plot", picture)
    expect(result.returncode == 0 and "% of bandwidth" in result.stdout, "bench failed", result)
    result = call(*sweep, "--tokens", "0", "--execution", "split,staged")
    expect(result.returncode == 0, "bench without tokens failed", result)
    points = document_of(records)
    seen = [(p["execution"], p["tokens"]) for p in points]
    expect(seen == [(e, t) for t in (1, 8) for e in ("fused", "split", "staged")] + [("split", 0), ("staged", 0)],
           f"records of {seen}", result)
    expect(all(set(p) == FIELDS for p in points), f"fields {set(points[0]) ^ FIELDS}", result)
    expect(xml.etree.ElementTree.parse(picture).getroot().tag.endswith("svg"), "no SVG", result)
    result = on_a_terminal("bench", *SMALL[:-2], "--ranks", "2", *rates, "--tokens", "8", "--calls", "30k")
    expect("bench [" in result.stdout and result.returncode == 0, "no progress on a terminal", result)
    refused(["bench", "--preset", "deepseek-v4-pro", "--ranks", "64"], "in all", "available", "fewer")
    refused(["bench", "--tokens", "1,many"], "many")
    refused(["bench", "--execution", "fussed"], "fused")
    refused(["bench", "--calls", "0"], "0")

    # bench --kernel mqa-logits: a row for each number of rows, and the same records.
    logits = os.path.join(folder, "mqa.json")
    result = call("bench", "--kernel", "mqa-logits", "--backend", "cpu", "--tokens", "2,8", "--keys", "300", "--heads", "5",
                  "--head-dim", "64", "--weights", "f16", "--causal", "--calls", "2", "--json", logits)
    expect(result.returncode == 0 and "5 heads of 64, f16 weights, causal" in result.stdout, "mqa bench failed", result)
    mqa_records = json.load(open(logits, encoding="utf-8"))
    expect([r["tokens"] for r in mqa_records] == [2, 8] and all(set(r) == FIELDS and r["us"] > 0 for r in mqa_records),
           f"records of the mqa bench: {mqa_records}", result)
    refused(["bench", "--kernel", "mqa-logits", "--backend", "cpu", "--head-dim", "96"], "96", "32, 64 or 128")
    refused(["bench", "--kernel", "mqa"], "layer or mqa-logits")
    refused(["bench", "--weights", "f8"], "f32 or f16")
    refused([*sweep[:-1], y, "--tokens", "1"], "array")

    # Under launchers every process is a rank, and rank 0 alone speaks: the same bits as by ourselves.
    call("run", *SMALL, "--ranks", "3", "--output", y)
    own = tensor(y, "output")
    for launcher in (torchrun, mpirun, mpiexec, srun):
        os.remove(y)
        results = launch(launcher, 3, "run", *SMALL, "--output", y)
        expect(all(r.returncode == 0 for r in results), f"{launcher.__name__}: run failed", results[0])
        expect("right" in results[0].stdout and "3 ranks" in results[0].stdout, "rank 0 is silent", results[0])
        expect(not results[1].stdout + results[2].stdout, f"{launcher.__name__}: other ranks speak", results[1])
        expect(os.path.exists(y) and tensor(y, "output") == own, f"{launcher.__name__}: other bits", results[0])
    # A rank's workers: all cores that it alone may use, and a part of those that others use as well.
    cores = sorted(os.sched_getaffinity(0))
    halves = [cores[:len(cores) // 2] or cores, cores[len(cores) // 2:]]
    for cores_of, workers in ((lambda rank: halves[rank], len(halves[0])),
                              (lambda rank: cores, max(1, len(cores) // 2))):
        results = launch(srun, 2, "run", *SMALL, "--explain", "--no-verify", cores_of=cores_of)
        expect(f"\nworkers       {workers} fused" in results[0].stdout, f"not {workers} workers", results[0])
    # Where its threads are, and that the caller may say so.
    result = call("run", *SMALL, "--ranks", "2", "--explain", "--bind", "yes")
    expect(result.returncode == 0 and ("threads bound" in result.stdout) == (len(cores) >= 2), "--bind yes", result)
    result = call("run", *SMALL, "--ranks", "2", "--explain", "--bind", "no")
    expect(result.returncode == 0 and "threads keep their mask" in result.stdout, "--bind no", result)
    refused(["run", *SMALL, "--bind", "perhaps"], "perhaps", "yes or no")
    result = call("plan", *SMALL, "--ranks", "2", *rates, "--json", y)
    places = json.load(open(y, encoding="utf-8"))["places"]
    expect("rank 1: CPU" in result.stdout and [bool(p["cpus"]) for p in places] == [True, True], "places", result)
    expect(len(cores) < 2 or not set(places[0]["cpus"]) & set(places[1]["cpus"]), f"{places}", result)
    results = launch(torchrun, 2, "verify", *SMALL, "--ranks", "2")
    expect(all(r.returncode == 0 for r in results) and "WRONG" not in results[0].stdout, "verify", results[0])
    results = launch(srun, 2, *sweep[:7], "--top-k", "2", "--tokens", "1,4", "--calls", "2", *rates)
    expect(all(r.returncode == 0 for r in results) and "fused" in results[0].stdout, "bench", results[0])
    results = launch(mpirun, 2, "run", *SMALL[:6], "--top-k", "7")
    expect(all(r.returncode == 2 and "top_k" in r.stderr for r in results), "a mistake", results[0])
    refused_launch(torchrun(0, 2), ["run", *SMALL, "--ranks", "3"], "--ranks is 3", "torchrun started 2")
    refused_launch({"RANK": "0"}, ["run", *SMALL], "WORLD_SIZE is not set")
    refused_launch({**torchrun(0, 4), "LOCAL_WORLD_SIZE": "2"}, ["run", *SMALL], "LOCAL_WORLD_SIZE is 2", "hosts")
    refused_launch({**srun(0, 4), "SLURM_NNODES": "2"}, ["verify", *SMALL], "SLURM_NNODES is 2", "hosts")
    refused_launch({**torchrun(0, 2), **srun(1, 2)}, ["bench", *SMALL[:6]], "torchrun says", "srun says")
    refused_launch(srun(0, 2), ["run", *SMALL, "--timeout", "1"], "rank 1 did not")
    if shutil.which("mpirun"):
        result = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", MEGAMOE, "run", *SMALL],
                                capture_output=True, text=True, timeout=120)
        expect(result.returncode == 0 and "2 ranks, started by mpirun" in result.stdout, "mpirun", result)

    refused([], "run")
    refused(["run", "--recipe", "fp7"], "fp8_fp4")
    refused(["run", "--tokens", "many"], "many")
    refused(["run", "--preset", "gpt-5"], "deepseek-v3")
    refused(["run", "--hidden", "100", *SMALL[2:]], "hidden", "32")
    refused(["run", *SMALL[:6], "--top-k", "7"], "top_k")
    refused(["run", "--checkpoint", folder], "config.json")
    refused(["run", "--checkpoint", fixture, "--layer", "9"], "9")
    refused(["run", "--checkpoint", fixture, "--hidden", "64"], "checkpoint")
    refused(["run", *source, "--tokens", "4"], "--tokens")
    refused(["run", *SMALL, "--backend", "cuda"], "cuda")
    refused(["run", *SMALL, "--json", os.path.join(folder, "no", "x.json")], "x.json")
    refused(["run", *SMALL, "--output", os.path.join(folder, "no", "y")], "no/y")
    refused(["run", *SMALL, "--workers", "0"], "workers")

if failures:
    print("\n".join(failures))
sys.exit(1 if failures else 0)
