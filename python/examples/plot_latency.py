"""Latency of a layer over tokens as an SVG, with NumPy alone.

    python plot_latency.py latency.svg
    python plot_latency.py latency.svg --hidden 1024 --intermediate 512 --experts 32 --top-k 4 --tokens 1,8,64,512
"""
import argparse
import math
import time

import megamoe
import numpy

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 80, 56, 36, 20
COLOURS = {"fused": "#1f5fb4", "split": "#c2571a", "staged": "#3a7d34"}


def make_layer(config, generator):
    """A layer of recipe fp8_fp4 with random weights."""
    def matrices(rows, columns):
        values = generator.integers(0, 256, (config.experts, rows, columns // 2), dtype=numpy.uint8)
        return values, generator.integers(118, 124, (config.experts, rows, columns // 32), dtype=numpy.uint8)

    w1, w1_scales = matrices(2 * config.intermediate, config.hidden)
    w2, w2_scales = matrices(config.hidden, config.intermediate)
    return megamoe.Layer(config, megamoe.Weights(w1, w2, format="fp4", w1_scales=w1_scales, w2_scales=w2_scales))


def median_ms(layer, tokens, execution, repeats, generator):
    """Median wall time of a call in milliseconds."""
    config = layer.config
    x = megamoe.to_bfloat16(generator.standard_normal((tokens, config.hidden)))
    experts = numpy.argsort(generator.random((tokens, config.experts)), axis=1)[:, :config.top_k].copy()
    weights = numpy.full((tokens, config.top_k), 1 / config.top_k, dtype=numpy.float32)
    y = layer(x, experts, weights, execution=execution)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        layer(x, experts, weights, y, execution=execution)
        times.append(1e3 * (time.perf_counter() - began))
    return float(numpy.median(times))


def axis(values):
    """Powers of ten around some values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def plot(curves, tokens, title):
    """curves: {name: [ms per entry of tokens]}; both axes logarithmic."""
    x_low, x_high = axis(tokens)
    y_low, y_high = axis([ms for curve in curves.values() for ms in curve])

    def at(t, ms):
        return (LEFT + (math.log10(t) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (math.log10(ms) - y_low) / (y_high - y_low) * (HEIGHT - BOTTOM - TOP))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', f'<text x="{LEFT}" y="22">{title}</text>']
    for power in range(x_low, x_high + 1):
        x, y = at(10**power, 10**y_low)
        parts.append(f'<path d="M{x:.1f} {y:.1f}V{TOP}" stroke="#ddd"/><text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{10**power}</text>')
    for power in range(y_low, y_high + 1):
        x, y = at(10**x_low, 10.0**power)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">tokens</text><text x="14" y="{TOP - 8}">ms</text>')
    for row, (name, curve) in enumerate(curves.items()):
        points = [at(t, ms) for t, ms in zip(tokens, curve)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[name]}"/>' for x, y in points]
        parts.append(f'<text x="{LEFT + 12}" y="{TOP + 16 * (row + 1)}" fill="{COLOURS[name]}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="SVG file to write")
    for name, value in (("hidden", 512), ("intermediate", 512), ("experts", 16), ("top-k", 4), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tokens", default="1,4,16,64,256", help="numbers with commas between")
    options = parser.parse_args()
    tokens = sorted(int(word) for word in options.tokens.split(","))
    generator = numpy.random.default_rng(1)
    config = megamoe.LayerConfig(hidden=options.hidden, intermediate=options.intermediate, experts=options.experts,
                                 top_k=options.top_k, max_tokens=tokens[-1])
    layer = make_layer(config, generator)
    curves = {name: [median_ms(layer, t, name, options.repeats, generator) for t in tokens] for name in COLOURS}
    title = f"fp8_fp4, H {config.hidden} I {config.intermediate} E {config.experts} k {config.top_k}, CPU"
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(plot(curves, tokens, title))
    for name, curve in curves.items():
        print(f"{name:7}", " ".join(f"{t}: {ms:.3g} ms" for t, ms in zip(tokens, curve)))


if __name__ == "__main__":
    main()
