"""llama.cpp's server from PyPI's package `xllamacpp`, until it is killed. Prints its address as a line of JSON.

Its argument is JSON: `model`, `slots` (the folder of slot files), and perhaps `threads`, `adapter` and `ropeBase`.
"""

import json
import signal
import sys

import xllamacpp

options = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = options["model"]
params.port = 0
params.n_parallel = 1
params.n_ctx = options["context"]
params.warmup = False
# Slot files are the only KV outside the pool.
params.cache_ram_mib = 0
params.slot_save_path = options["slots"]
params.endpoint_slots = True
if "threads" in options:
    params.cpuparams.n_threads = options["threads"]
    params.cpuparams_batch.n_threads = options["threads"]
if "ropeBase" in options:
    params.rope_freq_base = options["ropeBase"]
if "adapter" in options:
    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path = options["adapter"]
    adapter.scale = 1.0
    params.lora_adapters = [adapter]
server = xllamacpp.Server(params)
print(json.dumps({"address": server.listening_address}), flush=True)
signal.pause()
