#!/usr/bin/env python3
"""The command as a user calls it: output, exit codes, files, and what it says about mistakes."""
import json
import os
import struct
import subprocess
import sys
import tempfile

MEGAMOE, FIXTURES = sys.argv[1:3]
SMALL = ["--hidden", "64", "--intermediate", "64", "--experts", "6", "--top-k", "2", "--tokens", "5"]
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


def tensor(path, name):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        begin, end = header[name]["data_offsets"]
        file.seek(8 + size + begin)
        return header[name]["dtype"], header[name]["shape"], file.read(end - begin)


with tempfile.TemporaryDirectory() as folder:
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
    result = call("run", "--help")
    expect(result.returncode == 0 and "Examples" in result.stdout, "help has no examples", result)

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
