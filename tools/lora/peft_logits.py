"""The logits of a model with a LoRA adapter by PEFT, from the GGUF files of both (architecture qwen2, F32).

    pip install torch==2.11.0 transformers==5.24.0 peft==0.21.2 gguf==0.19.0
    npm run build && node dist/scripts/peft-logits.js python3

writes test/data/peft-logits.json. Neither libllama nor Kvasir computes here.
"""
import json
import re
import sys

import torch
from gguf import GGUFReader
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

MODULES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}


def module_of(name):
    layer = re.match(r"blk\.(\d+)\.(\w+)", name)
    return f"model.layers.{layer[1]}.{MODULES[layer[2]]}" if layer else OUTSIDE[name.split(".")[0]]


def tensors_of(reader):
    return {tensor.name: torch.tensor(tensor.data.copy()) for tensor in reader.tensors}


def model_of(reader):
    of = lambda key: reader.fields[f"qwen2.{key}"].contents()
    tensors = tensors_of(reader)
    config = Qwen2Config(
        vocab_size=len(tensors["token_embd.weight"]), hidden_size=of("embedding_length"), intermediate_size=of("feed_forward_length"),
        num_hidden_layers=of("block_count"), num_attention_heads=of("attention.head_count"), num_key_value_heads=of("attention.head_count_kv"),
        rms_norm_eps=of("attention.layer_norm_rms_epsilon"), max_position_embeddings=of("context_length"), tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": of("rope.freq_base")},
    )
    model = Qwen2ForCausalLM(config).eval()
    state = {f"{module_of(name)}.{name.split('.')[-1]}": tensor for name, tensor in tensors.items()}
    model.load_state_dict(state)
    return model


def with_adapter(model, reader):
    tensors = tensors_of(reader)
    names = [name.removesuffix(".weight.lora_b") for name in tensors if name.endswith(".lora_b")]
    modules = {name: module_of(name) for name in names}
    rank = tensors[f"{names[0]}.weight.lora_b"].shape[1]
    alpha = reader.fields["adapter.lora.alpha"].contents()
    # One that ends with another's name would match both.
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=sorted({module.split(".")[-1] for module in modules.values()}))
    peft = get_peft_model(model, config)
    state = {}
    for name, module in modules.items():
        first, second = tensors[f"{name}.weight.lora_a"], tensors[f"{name}.weight.lora_b"]
        prefix = f"base_model.model.{module}"
        if name == "token_embd":
            state |= {f"{prefix}.lora_embedding_A.default": first.T, f"{prefix}.lora_embedding_B.default": second}
        else:
            state |= {f"{prefix}.lora_A.default.weight": first, f"{prefix}.lora_B.default.weight": second}
    found = peft.load_state_dict(state, strict=False)
    assert not found.unexpected_keys, found.unexpected_keys
    assert not [key for key in found.missing_keys if "lora_" in key], found.missing_keys
    return peft.eval()


def main():
    model_path, adapter_path = sys.argv[1:3]
    tokens = json.load(sys.stdin)
    model = model_of(GGUFReader(model_path))
    with torch.no_grad():
        plain = model(torch.tensor([tokens])).logits[0, -1]
        adapted = with_adapter(model, GGUFReader(adapter_path))(torch.tensor([tokens])).logits[0, -1]
    rounded = lambda logits: [round(value, 5) for value in logits.tolist()]
    json.dump({"plain": rounded(plain), "adapted": rounded(adapted)}, sys.stdout)


main()
