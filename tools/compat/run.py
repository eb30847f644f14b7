"""Runs clients of OpenAI's, Anthropic's and Ollama's API against a server with one model, and writes what worked to docs/compatibility.md.

    python3 tools/compat/run.py --model FILE.gguf    all clients; installs those of PyPI into virtual environments of their own
    python3 tools/compat/run.py --clients openai     some of them; the page keeps the results of the others on this model and version
    python3 tools/compat/run.py --build FOLDER       where the virtual environments are (default: tools/compat/build)

Without `--model`, the bundled model answers, which calls no tools. Build Kvasir first (`npm install && npm run build`), which installs the clients
of npm. Needs Python 3.11, Go 1.24 for Ollama's client for Go, and about 10 GB for vLLM's packages; no GPU.
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
BUNDLED = ROOT / "models" / "kvasir-demo.gguf"
PACKAGE = json.loads((ROOT / "package.json").read_text())


@dataclass(frozen=True)
class Client:
    name: str
    """Of the script, and by default of the requirements and the virtual environment."""
    package: str
    title: str
    is_from_npm: bool = False
    is_from_go: bool = False
    packages_of: str | None = None
    """A client with the same packages."""

    @property
    def script(self) -> Path:
        name = self.name.replace("-", "_")
        if self.is_from_go:
            return HERE / "clients" / name
        return HERE / "clients" / f"{name}_client.{'mjs' if self.is_from_npm else 'py'}"

    @property
    def environment(self) -> str:
        return self.packages_of or self.name

    @property
    def version(self) -> str:
        if self.is_from_npm:
            return PACKAGE["devDependencies"][self.package]
        if self.is_from_go:
            return re.search(rf"{re.escape(self.package)} v(\S+)", (self.script / "go.mod").read_text()).group(1)
        pins = (HERE / "requirements" / f"{self.environment}.txt").read_text()
        return re.search(rf"^{re.escape(self.package)}==(\S+)", pins, re.MULTILINE).group(1)


CLIENTS = [
    Client("openai", "openai", "openai (Python)"),
    Client("openai-npm", "openai", "openai (npm)", is_from_npm=True),
    Client("litellm", "litellm", "LiteLLM"),
    Client("litellm-ollama", "litellm", "LiteLLM (`ollama_chat/`, `ollama/`)", packages_of="litellm"),
    Client("langchain", "langchain-openai", "LangChain (`langchain-openai`)"),
    Client("anthropic", "anthropic", "anthropic (Python)"),
    Client("anthropic-npm", "@anthropic-ai/sdk", "@anthropic-ai/sdk (npm)", is_from_npm=True),
    Client("ollama", "ollama", "ollama (Python)"),
    Client("ollama-npm", "ollama", "ollama (npm)", is_from_npm=True),
    Client("ollama-go", "github.com/ollama/ollama", "Ollama's client for Go", is_from_go=True),
    Client("guidellm", "guidellm", "guidellm"),
    Client("vllm", "vllm", "`vllm bench serve`"),
    Client("lm-eval", "lm-eval", "lm-eval"),
]


def command_of(client: Client, build: Path) -> list[Path | str]:
    """Runs the client. Installs exactly the pinned packages of Python, or nothing if they are installed."""
    if client.is_from_npm:
        return ["node", client.script]
    if client.is_from_go:
        program = build / client.name
        subprocess.run(["go", "build", "-o", program, "."], cwd=client.script, check=True)
        return [program]
    tools = build / "uv"
    if not (tools / "bin" / "uv").exists():
        venv.create(tools, with_pip=True)
        subprocess.run([tools / "bin" / "python", "-m", "pip", "install", "-q", UV], check=True)
    python = build / client.environment / "bin" / "python"
    uv = str(tools / "bin" / "uv")
    if not python.exists():
        subprocess.run([uv, "venv", "-q", "--python", "3.11", build / client.environment], check=True)
    requirements = HERE / "requirements" / f"{client.environment}.txt"
    subprocess.run([uv, "pip", "sync", "-q", "--python", python, requirements], check=True)
    return [python, client.script]


def start_server(model: Path, build: Path) -> tuple[subprocess.Popen, str]:
    """The server's process and its address, which it prints when it listens."""
    log = build / "server.log"
    command = ["node", "dist/bundle/src/main.js", "serve", str(model), "--port", "0", "--pooling", "mean"]
    with log.open("w") as stderr:
        server = subprocess.Popen(command, cwd=ROOT, stderr=stderr)
    while server.poll() is None:
        found = re.search(r"address=(http://\S+)", log.read_text())
        if found:
            return server, found.group(1)
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    sys.exit(f"The server ended: {log.read_text()[-500:]}")


def outcomes_of(command: list[Path | str], url: str, model: Path) -> list[dict]:
    calls = {} if model == BUNDLED else {"COMPAT_CALLS": "1"}
    env = {**os.environ, **calls, "COMPAT_URL": url, "COMPAT_MODEL": model.stem, "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600)
    outcomes = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"feature"')]
    if ran.returncode != 0:
        outcomes.append({"feature": "the script", "works": False, "detail": ran.stderr[-300:]})
    return outcomes


def last_results(results: Path) -> dict[Client, dict]:
    """For each client that ran: its version, the date and the outcomes."""
    files = {client: results / f"{client.name}.json" for client in CLIENTS}
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


def converter_table() -> str:
    """The table that `tools/converter/run.py` wrote."""
    page = (ROOT / "docs" / "compatibility.md").read_text()
    return re.search("<!-- tools/converter/run.py writes this table -->.*?<!-- end -->", page, re.DOTALL).group(0)


def document(results: dict[Client, dict], model: Path) -> str:
    failures = [
        f"- {client.title}, {outcome['feature']}: `{' '.join(outcome['detail'].replace('`', '').split())}`"
        for client, result in results.items()
        for outcome in result["outcomes"]
        if not outcome["works"]
    ]
    missing = [client.title for client in CLIENTS if client not in results]
    text = (HERE / "compatibility-head.md").read_text()
    text = text.format(table=table(results), version=PACKAGE["version"], model=model.name, converter=converter_table())
    text += "\nWhat failed, with the message of the client:\n\n" + "\n".join(failures) + "\n" if failures else ""
    return text + (f"\nNot run on this model and version: {', '.join(missing)}.\n" if missing else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", choices=[client.name for client in CLIENTS])
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--build", type=Path, default=HERE / "build")
    flags = parser.parse_args()
    build, model = flags.build.resolve(), flags.model.resolve()
    # The page has results of one model and one version.
    results = build / "results" / PACKAGE["version"] / model.stem
    results.mkdir(parents=True, exist_ok=True)
    chosen = [client for client in CLIENTS if flags.clients is None or client.name in flags.clients]
    commands = {client: command_of(client, build) for client in chosen}
    server, url = start_server(model, build)
    try:
        for client, command in commands.items():
            outcomes = outcomes_of(command, url, model)
            result = {"version": client.version, "date": str(datetime.date.today()), "outcomes": outcomes}
            (results / f"{client.name}.json").write_text(json.dumps(result))
            for outcome in outcomes:
                print(f"{client.name:13} {outcome['feature']:24} {'yes' if outcome['works'] else outcome['detail']}", flush=True)
    finally:
        server.terminate()
        server.wait()
    (ROOT / "docs" / "compatibility.md").write_text(document(last_results(results), model))


main()
