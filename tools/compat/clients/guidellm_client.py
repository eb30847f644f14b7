"""guidellm: a benchmark of six requests."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from features import MODEL, URL, report
from word_tokenizer import save_tokenizer

folder = Path(tempfile.mkdtemp())
tokenizer = save_tokenizer(str(folder / "tokenizer"))
# Not synthetic texts: guidellm makes them by decoding tokens, and the small tokenizer knows few words.
prompts = folder / "prompts.jsonl"
prompts.write_text(
    "".join(
        json.dumps({"prompt": f"Tell me story number {i}.", "output_tokens_count": 8}) + "\n" for i in range(16)
    )
)


def benchmark(extra: str) -> None:
    output = folder / "report.json"
    command = [sys.executable, "-m", "guidellm", "run", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={URL},model={MODEL}{extra}"]
    command += ["--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
    command += ["--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={output}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, (ran.stderr or ran.stdout)[-300:]
    totals = json.loads(output.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    assert totals["successful"] >= 6 and totals["errored"] == 0, totals


report(
    {
        "benchmark, chat": lambda: benchmark(""),
        "benchmark, completions": lambda: benchmark(",request_format=/v1/completions"),
    }
)
