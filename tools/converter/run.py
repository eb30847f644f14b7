"""Makes tiny random checkpoints, converts them with llama.cpp's own converter, and writes GGUF files with what transformers computes.

    python3 tools/converter/run.py                    all cases; Kvasir computes them, and the table of docs/compatibility.md is written
    python3 tools/converter/run.py --cases granite    some of them, without the table
    python3 tools/converter/run.py --keep             also copies the small files of npm test to test/data/converted
    python3 tools/converter/run.py --python PYTHON --llama-cpp FOLDER    an environment and a converter that exist

Installs torch, transformers and the source package of llama-cpp-python, which has the converter, into tools/converter/build (6 GB).
Build Kvasir first (`npm install && npm run build`). No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import traceback
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = HERE / "build"
KEPT = ROOT / "test" / "data" / "converted"
SOURCE = "llama-cpp-python==0.3.36"
PRE = {"bytes": "qwen2", "roberta": "roberta-bpe", "unigram": "default", "unigram-llama": "default"}


def environment() -> tuple[Path, Path]:
    """The Python that has torch, and the folder of llama.cpp."""
    python = BUILD / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(BUILD / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
    llama_cpp = BUILD / "llama.cpp"
    if not llama_cpp.exists():
        subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", BUILD, SOURCE], check=True)
        with tarfile.open(next(BUILD.glob("llama_cpp_python-*.tar.gz"))) as archive:
            archive.extractall(BUILD / "source", filter="data")
        (next((BUILD / "source").iterdir()) / "vendor" / "llama.cpp").rename(llama_cpp)
    return python, llama_cpp


def make(names: list[str], folder: Path, llama_cpp: Path) -> None:
    """Runs in the environment with torch."""
    import checkpoints
    from convert import convert

    for case in checkpoints.CASES:
        if names and case.name not in names:
            continue
        target = folder / case.name
        shutil.rmtree(target, ignore_errors=True)
        try:
            checkpoints.make(case, target)
        except Exception as error:  # noqa: BLE001: the other cases go on
            print(f"{case.name}: no checkpoint: {type(error).__name__}: {error}")
            continue
        try:
            convert(llama_cpp, PRE[case.vocabulary], target, folder / f"{case.name}.gguf")
        except (Exception, SystemExit) as error:  # noqa: BLE001
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{case.name}: not converted: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno}: {place.line})")
            continue
        shutil.copy(target / "expected.json", folder / f"{case.name}.json")
        shutil.rmtree(target)
        print(f"{case.name}: {(folder / f'{case.name}.gguf').stat().st_size // 1024} KiB", flush=True)


def compare(folder: Path) -> list[dict[str, object]]:
    """The distances that the test of converted files measures."""
    results = BUILD / "results.json"
    settings = os.environ | {"KVASIR_CONVERTED": str(folder), "KVASIR_CONVERTED_RESULTS": str(results)}
    subprocess.run(["npx", "vitest", "run", "test/converted.test.ts"], cwd=ROOT, env=settings)
    return json.loads(results.read_text())


def write_table(rows: list[dict[str, object]]) -> None:
    page = ROOT / "docs" / "compatibility.md"
    lines = ["| checkpoint | architecture | largest distance from transformers |", "|---|---|---|"]
    for row in rows:
        distance = row["distance"]
        said = f"{distance:.5f}" if isinstance(distance, float) else distance
        lines.append(f"| {row['name']} | `{row['architecture']}` | {said} |")
    begin, end = "<!-- tools/converter/run.py writes this table -->", "<!-- end -->"
    text = page.read_text()
    table = f"{begin}\n\n" + "\n".join(lines) + f"\n\n{end}"
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: table, text, flags=re.DOTALL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--llama-cpp", type=Path)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make is not None:
        make(arguments.cases, arguments.make, arguments.llama_cpp)
        return
    given = (arguments.python, arguments.llama_cpp)
    python, llama_cpp = given if None not in given else environment()
    folder = BUILD / "files"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([python, __file__, "--make", folder, "--llama-cpp", llama_cpp.resolve(), "--cases", *arguments.cases], check=True)
    if arguments.keep:
        for path in [*folder.glob("*.gguf"), *folder.glob("*.json")]:
            if (KEPT / path.name).exists() or path.stem in arguments.cases:
                shutil.copy(path, KEPT / path.name)
        subprocess.run("npx biome check --write test/data/converted", cwd=ROOT, shell=True, check=True)
    rows = sorted(compare(folder), key=lambda row: (row["architecture"], row["name"]))
    if not arguments.cases:
        write_table(rows)


if __name__ == "__main__":
    main()
