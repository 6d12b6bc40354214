"""The examples run."""
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"


def test_the_latency_plot_is_drawn(tmp_path):
    file = tmp_path / "latency.svg"
    run = subprocess.run([sys.executable, EXAMPLES / "plot_latency.py", file, "--hidden", "128", "--intermediate", "128",
                          "--experts", "4", "--top-k", "2", "--tokens", "1,8", "--repeats", "2"],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    picture = xml.etree.ElementTree.parse(file).getroot()
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 and all(len(line.get("points").split()) == 2 for line in lines)
