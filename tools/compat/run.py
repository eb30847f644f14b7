"""Runs clients of OpenAI's, Anthropic's and Ollama's API against a server with a bundled model, and writes what worked to docs/compatibility.md.

    python3 tools/compat/run.py                      all clients; installs each into a virtual environment of its own
    python3 tools/compat/run.py --clients openai     some of them; the page keeps the last results of the others
    python3 tools/compat/run.py --build FOLDER       where the virtual environments are (default: tools/compat/build)

Build Kvasir first (`npm run build`). Needs Python 3.11 and about 10 GB for vLLM's packages; no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
UV = "uv==0.13.9"
MODEL = "kvasir-demo"


@dataclass(frozen=True)
class Client:
    name: str
    """Of the requirements, the virtual environment and the script."""
    package: str
    title: str

    @property
    def version(self) -> str:
        pins = (HERE / "requirements" / f"{self.name}.txt").read_text()
        return re.search(rf"^{re.escape(self.package)}==(\S+)", pins, re.MULTILINE).group(1)


CLIENTS = [
    Client("openai", "openai", "openai (Python)"),
    Client("litellm", "litellm", "LiteLLM"),
    Client("langchain", "langchain-openai", "LangChain (`langchain-openai`)"),
    Client("anthropic", "anthropic", "anthropic (Python)"),
    Client("ollama", "ollama", "ollama (Python)"),
    Client("guidellm", "guidellm", "guidellm"),
    Client("vllm", "vllm", "`vllm bench serve`"),
    Client("lm-eval", "lm-eval", "lm-eval"),
]


def python_of(client: Client, build: Path) -> Path:
    """Installs exactly the pinned packages, or nothing if they are installed."""
    tools = build / "uv"
    if not (tools / "bin" / "uv").exists():
        venv.create(tools, with_pip=True)
        subprocess.run([tools / "bin" / "python", "-m", "pip", "install", "-q", UV], check=True)
    python = build / client.name / "bin" / "python"
    uv = str(tools / "bin" / "uv")
    if not python.exists():
        subprocess.run([uv, "venv", "-q", "--python", "3.11", build / client.name], check=True)
    requirements = HERE / "requirements" / f"{client.name}.txt"
    subprocess.run([uv, "pip", "sync", "-q", "--python", python, requirements], check=True)
    return python


def start_server(build: Path) -> tuple[subprocess.Popen, str]:
    """The server's process and its address, which it prints when it listens."""
    log = build / "server.log"
    command = ["node", "dist/src/main.js", "serve", f"models/{MODEL}.gguf", "--port", "0"]
    command += ["--pooling", "mean"]
    with log.open("w") as stderr:
        server = subprocess.Popen(command, cwd=ROOT, stderr=stderr)
    while server.poll() is None:
        found = re.search(r"address +(http://\S+)", log.read_text())
        if found:
            return server, found.group(1)
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    sys.exit(f"The server ended: {log.read_text()[-500:]}")


def outcomes_of(client: Client, python: Path, url: str) -> list[dict]:
    env = {**os.environ, "COMPAT_URL": url, "COMPAT_MODEL": MODEL, "CUDA_VISIBLE_DEVICES": ""}
    script = HERE / "clients" / f"{client.name.replace('-', '_')}_client.py"
    ran = subprocess.run([python, script], env=env, capture_output=True, text=True, timeout=900)
    outcomes = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"feature"')]
    if ran.returncode != 0:
        outcomes.append({"feature": "the script", "works": False, "detail": ran.stderr[-300:]})
    return outcomes


def last_results(build: Path) -> dict[Client, dict]:
    """For each client that ran: its version, the date and the outcomes."""
    files = {client: build / f"{client.name}.json" for client in CLIENTS}
    return {client: json.loads(file.read_text()) for client, file in files.items() if file.exists()}


def table(results: dict[Client, dict]) -> str:
    """Clients with the same features share a table."""
    parts: list[str] = []
    groups: dict[tuple[str, ...], list[Client]] = {}
    for client, result in results.items():
        groups.setdefault(tuple(outcome["feature"] for outcome in result["outcomes"]), []).append(client)
    for features, clients in groups.items():
        lines = [f"| client | version | date | {' | '.join(features)} |", f"|---|---|---|{'---|' * len(features)}"]
        for client in clients:
            result = results[client]
            cells = ["yes" if outcome["works"] else "no" for outcome in result["outcomes"]]
            lines.append(f"| {client.title} | {result['version']} | {result['date']} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def document(results: dict[Client, dict]) -> str:
    failures = [
        f"- {client.title}, {outcome['feature']}: `{' '.join(outcome['detail'].replace('`', '').split())}`"
        for client, result in results.items()
        for outcome in result["outcomes"]
        if not outcome["works"]
    ]
    text = (HERE / "compatibility-head.md").read_text().format(table=table(results))
    return text + ("\nWhat failed, with the message of the client:\n\n" + "\n".join(failures) + "\n" if failures else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", choices=[client.name for client in CLIENTS])
    parser.add_argument("--build", type=Path, default=HERE / "build")
    flags = parser.parse_args()
    build = flags.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    chosen = [client for client in CLIENTS if flags.clients is None or client.name in flags.clients]
    pythons = {client: python_of(client, build) for client in chosen}
    server, url = start_server(build)
    try:
        for client, python in pythons.items():
            outcomes = outcomes_of(client, python, url)
            result = {"version": client.version, "date": str(datetime.date.today()), "outcomes": outcomes}
            (build / f"{client.name}.json").write_text(json.dumps(result))
            for outcome in outcomes:
                print(f"{client.name:10} {outcome['feature']:24} {'yes' if outcome['works'] else outcome['detail']}", flush=True)
    finally:
        server.terminate()
        server.wait()
    (ROOT / "docs" / "compatibility.md").write_text(document(last_results(build)))


main()
