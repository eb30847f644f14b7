"""Writes test/data/yarn-frequencies.json: the frequencies of YaRN that transformers computes, with the keys that llama.cpp's converter
writes for the same configuration.

    pip install torch==2.11.0 transformers==5.24.0
    python3 tools/rope/record.py > test/data/yarn-frequencies.json
"""
import json

from transformers import DeepseekV3Config, GptOssConfig, LlamaConfig, Ministral3Config, Olmo3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SIZES = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4}
USUAL = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 10000.0}
CASES = [
    ("llama", LlamaConfig, {}, {}),
    ("llama", LlamaConfig, {"attention_factor": 0.8}, {}),
    ("llama", LlamaConfig, {"beta_fast": 8.0, "beta_slow": 2.0}, {}),
    ("qwen2", Qwen2Config, {"attention_factor": 1.0, "beta_fast": 4.0, "beta_slow": 4.0}, {}),
    ("qwen2", Qwen2Config, {"factor": 2.0, "beta_fast": 64.0, "beta_slow": 0.5, "attention_factor": 1.7, "rope_theta": 1000000.0}, {}),
    ("qwen3", Qwen3Config, {"beta_fast": 16.0, "rope_theta": 1000000.0}, {"head_dim": 128}),
    ("qwen3moe", Qwen3MoeConfig, {"beta_slow": 3.0, "attention_factor": 1.3}, {"head_dim": 64}),
    ("olmo2", Olmo3Config, {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0, "rope_theta": 500000.0}, {}),
    ("mistral3", Ministral3Config, {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1}, {"head_dim": 64}),
    ("mistral3", Ministral3Config, {"mscale": 1.0, "mscale_all_dim": 1.0, "attention_factor": 0.9, "beta_fast": 6.0, "llama_4_scaling_beta": 0.1}, {"head_dim": 64}),
    ("deepseek2", DeepseekV3Config, {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 12.0, "beta_slow": 2.0}, {"qk_rope_head_dim": 64}),
    ("deepseek2", DeepseekV3Config, {"mscale": 1.0, "mscale_all_dim": 1.0, "attention_factor": 1.1}, {"qk_rope_head_dim": 64}),
    ("gpt-oss", GptOssConfig, {"factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "rope_theta": 150000.0}, {"head_dim": 64}),
    ("gpt-oss", GptOssConfig, {"factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.5, "truncate": False}, {"head_dim": 64}),
]


def case(architecture, kind, changes, sizes):
    parameters = {**USUAL, **changes}
    given = {"full_attention": parameters, "sliding_attention": {"rope_type": "default", "rope_theta": parameters["rope_theta"]}} if kind is Olmo3Config else parameters
    config = kind(**SIZES, **sizes, max_position_embeddings=int(4096 * parameters["factor"]), rope_parameters=given)
    layer = {"layer_type": "full_attention"} if kind is Olmo3Config else {}
    frequencies, magnitude = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu", **layer)
    # As `convert_hf_to_gguf.py` (llama.cpp v0.5.0).
    keys = {"scaling.factor": "factor", "scaling.yarn_attn_factor": "attention_factor", "scaling.yarn_beta_fast": "beta_fast", "scaling.yarn_beta_slow": "beta_slow", "freq_base": "rope_theta"}
    written = {key: parameters[name] for key, name in keys.items() if name in parameters}
    if "mscale_all_dim" in parameters:
        written["scaling.yarn_log_multiplier"] = parameters["mscale_all_dim"] * (0.1 if architecture == "deepseek2" else 1)
    return {
        "architecture": architecture, "keys": written, "dimension": 2 * len(frequencies),
        "originalContext": parameters["original_max_position_embeddings"], "frequencies": frequencies.tolist(), "magnitude": magnitude,
    }


def main():
    print(json.dumps([case(*given) for given in CASES]))


main()
