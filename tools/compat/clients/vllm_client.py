"""`vllm bench serve`: a benchmark of six requests for each of two endpoints."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from features import MODEL, URL, report
from word_tokenizer import save_tokenizer

folder = Path(tempfile.mkdtemp())
tokenizer = save_tokenizer(str(folder / "tokenizer"))


def benchmark(backend: str, endpoint: str) -> None:
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", backend]
    command += ["--base-url", URL, "--endpoint", endpoint, "--model", MODEL, "--tokenizer", tokenizer]
    command += ["--dataset-name", "random", "--random-input-len", "16", "--random-output-len", "8", "--ignore-eos"]
    command += ["--num-prompts", "6", "--max-concurrency", "2", "--save-result", "--result-dir", str(folder)]
    command += ["--result-filename", f"{backend}.json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, (ran.stderr or ran.stdout)[-300:]
    result = json.loads((folder / f"{backend}.json").read_text())
    assert result["completed"] == 6 and result["total_output_tokens"] == 48, ran.stdout[-300:]


report(
    {
        "benchmark, chat": lambda: benchmark("openai-chat", "/v1/chat/completions"),
        "benchmark, completions": lambda: benchmark("openai", "/v1/completions"),
    }
)
