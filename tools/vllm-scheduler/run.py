"""Runs vLLM 0.33.0's own scheduler, without a model, on the scenarios of sim/scheduler/pool-scenarios.ts.

    python3 -m venv venv && venv/bin/pip install numpy msgspec pydantic cbor2 cloudpickle
    venv/bin/pip download vllm==0.33.0 --no-deps && unzip -q vllm-0.33.0-*.whl 'vllm/*.py' -d source
    npm run build && node --input-type=module -e "
      import { randomScenario } from './dist/sim/scheduler/pool-scenarios.js';
      for (let seed = 1; seed <= 300; seed++) console.log(JSON.stringify(randomScenario(seed, false)));" > scenarios.jsonl
    venv/bin/python tools/vllm-scheduler/run.py source scenarios.jsonl

Prints one line of JSON for each scenario: the tokens of all steps. Modules that the scheduler imports but does not need here (torch,
the models, the configuration) are replaced by stubs. Requests end after a known output, so nothing is sampled.
"""

from __future__ import annotations

import collections.abc
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import pickle
import sys
import types
from types import SimpleNamespace

SOURCE = sys.argv[1]
REAL = (
    "vllm.v1.core",
    "vllm.v1.request",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.utils.math_utils",
    "vllm.v1.engine",
    "vllm.v1.outputs",
    "vllm.v1.metrics.stats",
    "vllm.v1.kv_hints",
    "vllm.v1.metrics.cache_hit_source",
    "vllm.v1.kv_cache_layout",
    "vllm.utils.hashing",
)
ABSENT = ("torch", "transformers", "PIL", "xgrammar", "regex", "tqdm", "zmq", "prometheus_client", "cv2", "ray")


class Anything:
    """Stands for a value that is only named."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _):
        return self

    def __or__(self, _):
        return self

    def __ror__(self, _):
        return self

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __mro_entries__(self, _):
        return (object,)


class AnyClass(type):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = Anything()
        if name[0].isupper():
            members = {
                "__class_getitem__": classmethod(lambda cls, _: cls),
                "__init__": lambda self, *_, **__: None,
                "create": classmethod(lambda cls, *_, **__: None),
            }
            value = AnyClass(name, (), members)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top == "vllm" and any(name == real or name.startswith(f"{real}.") for real in REAL):
            file = os.path.join(SOURCE, *name.split("."))
            if os.path.exists(f"{file}/__init__.py"):
                return importlib.util.spec_from_file_location(
                    name, f"{file}/__init__.py", submodule_search_locations=[file]
                )
            if os.path.exists(f"{file}.py"):
                return importlib.util.spec_from_file_location(name, f"{file}.py")
        if top == "vllm" or top in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Stub(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


class Logger(logging.Logger):
    def info_once(self, *_, **__):
        pass

    warning_once = debug_once = info_once


sys.meta_path.insert(0, Finder())
import vllm.logger  # noqa: E402

vllm.logger.init_logger = Logger

import vllm.v1.core.kv_cache_utils as kv_cache_utils  # noqa: E402
import vllm.v1.core.sched.scheduler as scheduler_module  # noqa: E402
import vllm.v1.request as request_module  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402

HASH_BLOCK_SIZE = 16


class ConstantList(collections.abc.Sequence):
    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        return self.values[index]

    def __len__(self):
        return len(self.values)

    def copy(self):
        return list(self.values)


class NoEncoder:
    def __getattr__(self, _):
        return lambda *args, **kwargs: []


def digest(value):
    return hashlib.sha256(pickle.dumps(value)).digest()


request_module.StructuredOutputRequest = SimpleNamespace(from_sampling_params=lambda _: None)
request_module.length_from_prompt_token_ids_or_embeds = lambda tokens, _: len(tokens)
request_module.ConstantList = ConstantList
scheduler_module.record_function_or_nullcontext = lambda _: contextlib.nullcontext()
kv_cache_utils.resolve_none_hash_seed = lambda _: "0"
kv_cache_utils.init_none_hash(digest)


def spec_of(group):
    size = group["blockSize"]
    if group["kind"] == "state":
        return MambaSpec(block_size=size, shapes=((1,),), dtypes=(None,), mamba_cache_mode="align")
    common = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": None}
    if group["kind"] == "full":
        return FullAttentionSpec(**common)
    return SlidingWindowSpec(**common, sliding_window=group["window"])


def make_scheduler(scenario):
    """vLLM's defaults: chunked prefill, a prompt must fit when it is admitted, no watermark."""
    groups = scenario["groups"]
    budget = scenario["maxNumBatchedTokens"]
    block_size = max(group["blockSize"] for group in groups)
    has_states = any(group["kind"] == "state" for group in groups)
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            async_scheduling=False,
            disable_chunked_mm_input=False,
            enable_chunked_prefill=True,
            long_prefill_token_threshold=0,
            long_prefill_token_threshold_adaptive=False,
            max_num_active_seqs=None,
            max_num_batched_tokens=budget,
            max_num_scheduled_tokens=None,
            max_num_seqs=scenario["maxNumSeqs"],
            policy="fcfs",
            prefill_schedule_interval=1,
            scheduler_reserve_full_isl=True,
            watermark=0.0,
        ),
        cache_config=SimpleNamespace(
            block_size=groups[0]["blockSize"],
            enable_mamba_shared_prefix_checkpoint=False,
            enable_prefix_caching=True,
            mamba_cache_mode="align" if has_states else "none",
            num_gpu_blocks=scenario["blockCount"],
        ),
        model_config=SimpleNamespace(
            is_diffusion=False,
            is_encoder_decoder=False,
            max_model_len=scenario["maxModelLen"],
            return_sampling_mask=False,
            runner_type="generate",
            supports_multimodal_inputs=False,
            uses_mrope=False,
        ),
        observability_config=SimpleNamespace(
            enable_mfu_metrics=False,
            kv_cache_metrics=False,
            kv_cache_metrics_sample=0,
            per_request_spec_decode_metrics="none",
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
        ),
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(
            get_encoder_cache_manager_obj=lambda: SimpleNamespace(create_manager=lambda **_: NoEncoder())
        ),
        **dict.fromkeys(
            ("lora_config", "kv_events_config", "kv_transfer_config", "ec_transfer_config", "speculative_config")
        ),
        **dict.fromkeys(
            ("num_hash_lookahead_tokens", "num_lookahead_tokens", "num_prefill_lookahead_tokens"), 0
        ),
        num_speculative_tokens=0,
        is_mm_encoder_only=False,
        use_v2_model_runner=False,
        max_concurrent_batches=1,
        max_in_flight_tokens=budget,
    )
    kv_cache_config = KVCacheConfig(
        num_blocks=scenario["blockCount"],
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec(layer_names=[f"layer{i}"], kv_cache_spec=spec_of(group))
            for i, group in enumerate(groups)
        ],
    )
    grammars = SimpleNamespace(should_advance=lambda _: False, accept_tokens=lambda *_: True)
    return scheduler_module.Scheduler(
        config, kv_cache_config, grammars, block_size=block_size, hash_block_size=HASH_BLOCK_SIZE
    )


def make_request(request, arrival):
    params = SimpleNamespace(
        max_tokens=len(request["output"]),
        extra_args=None,
        eos_token_id=None,
        stop_token_ids=(),
        min_tokens=0,
        repetition_detection=None,
        num_logprobs=None,
        prompt_logprobs=None,
        structured_outputs=None,
        skip_reading_prefix_cache=False,
    )
    hasher = kv_cache_utils.get_request_block_hasher(HASH_BLOCK_SIZE, digest)
    return request_module.Request(
        request["id"], list(request["prompt"]), params, None, block_hasher=hasher, arrival_time=float(arrival)
    )


def run(scenario):
    scheduler = make_scheduler(scenario)
    live, outputs, ended = {}, {}, set()
    tokens = step = idle = 0
    while len(ended) < len(scenario["requests"]):
        for request in scenario["requests"]:
            is_early = step < request["step"] or (request["after"] is not None and request["after"] not in ended)
            if request["id"] in live or is_early:
                continue
            live[request["id"]] = make_request(request, len(live))
            outputs[request["id"]] = list(request["output"])
            scheduler.add_request(live[request["id"]])
        planned = scheduler.schedule()
        ids = list(planned.num_scheduled_tokens)
        tokens += sum(planned.num_scheduled_tokens.values())
        step += 1
        idle = 0 if ids else idle + 1
        if idle > 1000:
            return {"seed": scenario["seed"], "hung": True}
        # Tokens are scheduled up to the last one: the next token is sampled.
        sampled = [
            [outputs[i].pop(0)] if live[i].num_computed_tokens >= live[i].num_tokens else [] for i in ids
        ]
        result = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={name: at for at, name in enumerate(ids)}, sampled_token_ids=sampled
        )
        scheduler.update_from_output(planned, result)
        ended.update(i for i in ids if live[i].is_finished())
    return {"seed": scenario["seed"], "tokens": tokens}


with open(sys.argv[2], encoding="utf-8") as scenarios:
    for line in scenarios:
        print(json.dumps(run(json.loads(line))), flush=True)
