"""Tiny random checkpoints of Hugging Face, one for each row of `CASES`, and what transformers computes with them.

Weights are random, norms and biases too: a norm of ones or a bias of zeros would hide that an engine leaves it out. They are rounded to
F16, which the converter writes, so that both sides compute with equal numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

VOCABULARY = 288
SPECIAL = ["<|start|>", "<|end|>", "<|pad|>", "<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|observation|>", "<eop>"]


@dataclass(frozen=True)
class Case:
    name: str
    config: str
    """The class of the configuration in transformers."""
    model: str
    values: dict[str, Any]
    kind: str = "text"
    """`text`: logits. `score`: the value of a reranker for pairs of texts. `embedding`: the mean of the hidden states."""
    vocabulary: str = "bytes"
    """`bytes`, `roberta`, `unigram` (as XLM-RoBERTa) or `unigram-llama`."""
    seed: int = 1
    has_transposed_experts: bool = False
    """Published checkpoints have the matrices of experts transposed, and transformers turns them when it reads them."""
    published: dict[str, Any] | None = None
    """What config.json of published checkpoints says, where transformers writes something else; None: nothing."""
    about: str = ""


TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, bos_token_id=256, eos_token_id=257, pad_token_id=258, tie_word_embeddings=False)
GRANITE = TEXT | dict(attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.3, logits_scaling=4.0)
VL_ROPE = {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": [2, 3, 3]}
# As in the published models, some pairs have no kind of position.
VL3_ROPE = VL_ROPE | {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
VISION = dict(depth=1, num_heads=2, hidden_size=32)
VISION3 = VISION | dict(intermediate_size=48, out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[0])
MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True)
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=130, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
DEEPSEEK = TEXT | dict(num_key_value_heads=2, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1, kv_lora_rank=32, q_lora_rank=48, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32, norm_topk_prob=True, routed_scaling_factor=2.5, rope_interleave=True)

CASES = [
    Case("reranker-xlm-roberta", "XLMRobertaConfig", "XLMRobertaForSequenceClassification", BERT | dict(num_labels=1), kind="score", vocabulary="unigram", about="bge-reranker"),
    Case("reranker-roberta", "RobertaConfig", "RobertaForSequenceClassification", BERT | dict(num_labels=1), kind="score", vocabulary="roberta"),
    Case("granite", "GraniteConfig", "GraniteForCausalLM", GRANITE),
    Case("granite-biases", "GraniteConfig", "GraniteForCausalLM", GRANITE | dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    Case("granitemoe", "GraniteMoeConfig", "GraniteMoeForCausalLM", GRANITE | dict(num_local_experts=6, num_experts_per_tok=2)),
    Case("granitemoe-shared", "GraniteMoeSharedConfig", "GraniteMoeSharedForCausalLM", GRANITE | dict(num_local_experts=6, num_experts_per_tok=2, shared_intermediate_size=32)),
    Case("qwen2vl", "Qwen2VLConfig", "Qwen2VLForConditionalGeneration", dict(vision_config=VISION | dict(embed_dim=32, mlp_ratio=2), text_config=TEXT | dict(rope_parameters=VL_ROPE)), about="text"),
    Case("qwen2.5vl", "Qwen2_5_VLConfig", "Qwen2_5_VLForConditionalGeneration", dict(vision_config=VISION | dict(intermediate_size=48, out_hidden_size=32, fullatt_block_indexes=[0]), text_config=TEXT | dict(rope_parameters=VL_ROPE)), about="text"),
    Case("qwen3vl", "Qwen3VLConfig", "Qwen3VLForConditionalGeneration", dict(vision_config=VISION3, text_config=TEXT | dict(head_dim=16, rope_parameters=VL3_ROPE)), about="text"),
    Case("qwen3vlmoe", "Qwen3VLMoeConfig", "Qwen3VLMoeForConditionalGeneration", dict(vision_config=VISION3, text_config=TEXT | MOE | dict(head_dim=16, rope_parameters=VL3_ROPE)), has_transposed_experts=True, about="text"),
    Case("llama-biases", "LlamaConfig", "LlamaForCausalLM", TEXT | dict(attention_bias=True, mlp_bias=True)),
    Case("mixtral", "MixtralConfig", "MixtralForCausalLM", TEXT | dict(num_local_experts=6, num_experts_per_tok=2, sliding_window=None)),
    Case("deepseek3-groups", "DeepseekV3Config", "DeepseekV3ForCausalLM", DEEPSEEK | dict(scoring_func="sigmoid"), about="groups of experts"),
]
CASES += [
    # The converter permutes the rows of whole heads, so a Bamba whose RoPE rotates a part of a head (Bamba-9B) cannot be right.
    Case("bamba", "BambaConfig", "BambaForCausalLM", TEXT | dict(attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=32, mamba_expand=2, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}), published=dict(attn_layer_indices=[1], attn_rotary_emb=16, layer_types=None, layers_block_type=None), about="RoPE in whole heads"),
    Case("deepseek3", "DeepseekV3Config", "DeepseekV3ForCausalLM", DEEPSEEK | dict(scoring_func="sigmoid", n_group=1, topk_group=1)),
    Case("deepseek2-groups", "DeepseekV2Config", "DeepseekV2ForCausalLM", {k: v for k, v in DEEPSEEK.items() if k not in ("norm_topk_prob", "rope_interleave")} | dict(topk_method="group_limited_greedy"), about="groups of experts"),
]
# What was right before: each architecture of README.
CASES += [
    Case("llama", "LlamaConfig", "LlamaForCausalLM", TEXT),
    Case("qwen2", "Qwen2Config", "Qwen2ForCausalLM", TEXT),
    Case("qwen3", "Qwen3Config", "Qwen3ForCausalLM", TEXT | dict(head_dim=16)),
    Case("qwen3moe", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", TEXT | MOE | dict(head_dim=16)),
    Case("smollm3", "SmolLM3Config", "SmolLM3ForCausalLM", TEXT | dict(num_hidden_layers=4)),
    Case("olmo2", "Olmo2Config", "Olmo2ForCausalLM", TEXT),
    Case("olmo3", "Olmo3Config", "Olmo3ForCausalLM", TEXT | dict(num_hidden_layers=4, sliding_window=16)),
    Case("glm4", "Glm4Config", "Glm4ForCausalLM", TEXT | dict(head_dim=16, partial_rotary_factor=0.5)),
    Case("glm4moe", "Glm4MoeConfig", "Glm4MoeForCausalLM", TEXT | dict(head_dim=16, moe_intermediate_size=48, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, partial_rotary_factor=0.5)),
    Case("phi3", "Phi3Config", "Phi3ForCausalLM", TEXT | dict(sliding_window=None), vocabulary="unigram-llama"),
    Case("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", TEXT | dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=16, num_hidden_layers=6, tie_word_embeddings=True), vocabulary="unigram-llama"),
    Case("yarn-llama", "LlamaConfig", "LlamaForCausalLM", TEXT | dict(rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, rope_theta=10000.0, attention_factor=0.8, beta_fast=8.0, beta_slow=2.0))),
    Case("yarn-qwen2", "Qwen2Config", "Qwen2ForCausalLM", TEXT | dict(rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, rope_theta=10000.0, beta_fast=4.0, beta_slow=1.0))),
    Case("yarn-olmo3", "Olmo3Config", "Olmo3ForCausalLM", TEXT | dict(sliding_window=16, rope_parameters=dict(full_attention=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, rope_theta=10000.0, attention_factor=1.2, beta_fast=8.0, beta_slow=2.0), sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    Case("gpt-oss", "GptOssConfig", "GptOssForCausalLM", TEXT | dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=16)),
    Case("lfm2", "Lfm2Config", "Lfm2ForCausalLM", TEXT | dict(block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention"], tie_word_embeddings=True)),
    Case("granitehybrid", "GraniteMoeHybridConfig", "GraniteMoeHybridForCausalLM", GRANITE | dict(layer_types=["mamba", "attention"], shared_intermediate_size=48, num_local_experts=0, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=32, mamba_expand=2, position_embedding_type="nope"), published=dict(layer_types=["mamba", "attention"])),
    Case("qwen3.5", "Qwen3_5TextConfig", "Qwen3_5ForCausalLM", TEXT | dict(vocab_size=320, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16), published=dict(mtp_num_hidden_layers=1)),
]


def random_weights(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if name.endswith(("A_log", "dt_bias")):
                values = values * 0.3 + (0.5 if name.endswith("A_log") else 0.0)
            elif "norm" in name.lower() and name.endswith("weight"):
                values = 1 + 0.2 * values
            elif parameter.dim() < 2:
                values = 0.3 * values
            elif "embed" not in name:
                values = values / parameter.shape[-1] ** 0.5
            parameter.copy_(values.half().float())
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_((0.2 * torch.randn(buffer.shape, generator=generator)).half().float())


def write_bytes_vocabulary(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("e", "r"), ("i", "n"), ("th", "e")]
    texts = letters + SPECIAL + [a + b for a, b in merges]
    texts += [f"<|reserved_{i}|>" for i in range(VOCABULARY - len(texts))]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in texts if text in SPECIAL or text.startswith("<|")])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[2])
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


WORDS = "the fox eats mice and a bear sleeps in its cave while rain falls on green hills where old men sing songs of the sea"


PAIR_NAMES = ["<s>", "<pad>", "</s>", "<unk>"]
PAIR = dict(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
PAIR_SETTINGS = dict(bos_token="<s>", eos_token="</s>", sep_token="</s>", cls_token="<s>", unk_token="<unk>", pad_token="<pad>")


def write_roberta_vocabulary(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = PAIR_NAMES + letters + ["th", "the"]
    texts += [f"<|reserved_{i}|>" for i in range(VOCABULARY - len(texts))]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=[("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(**PAIR)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in texts if text in PAIR_NAMES or text.startswith("<|")])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast") | PAIR_SETTINGS))


def write_unigram_vocabulary(folder: Path, name: str, **settings: Any) -> None:
    corpus = folder / "corpus.txt"
    words = WORDS.split()
    corpus.write_text("\n".join(" ".join(words[(i * 7 + j * (i % 5 + 1)) % len(words)] for j in range(9)) for i in range(400)))
    sentencepiece.SentencePieceTrainer.train(input=str(corpus), model_prefix=str(folder / "piece"), normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2, num_threads=1, **settings)
    (folder / "piece.model").rename(folder / name)
    for path in [corpus, folder / "piece.vocab"]:
        path.unlink()


def write_pair_template(folder: Path) -> None:
    """How XLM-RoBERTa's tokenizer joins two texts; the pieces are those of sentencepiece."""
    tokenizer = Tokenizer(models.Unigram([(name, 0.0) for name in PAIR_NAMES], unk_id=3))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in PAIR_NAMES])
    tokenizer.post_processor = processors.TemplateProcessing(**PAIR)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="XLMRobertaTokenizer") | PAIR_SETTINGS))


def make(case: Case, folder: Path) -> None:
    """Writes the checkpoint and `expected.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    config = getattr(transformers, case.config)(**case.values)
    if case.vocabulary == "bytes":
        write_bytes_vocabulary(folder)
    elif case.vocabulary == "roberta":
        write_roberta_vocabulary(folder)
    elif case.vocabulary == "unigram":
        write_unigram_vocabulary(folder, "sentencepiece.bpe.model", vocab_size=120)
        write_pair_template(folder)
    else:
        write_unigram_vocabulary(folder, "tokenizer.model", vocab_size=288, byte_fallback=True)
        (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="LlamaTokenizer")))
    torch.manual_seed(case.seed)
    model = getattr(transformers, case.model)(config).eval().float()
    random_weights(model, case.seed)
    expected = {"name": case.name, "kind": case.kind, "transformers": transformers.__version__, "runs": []}
    if case.kind == "score":
        expected["runs"] = scores(model, folder)
    else:
        expected["runs"] = logits(model, case.seed)
    model.half().save_pretrained(folder)
    if case.published is not None:
        path = folder / "config.json"
        values = json.loads(path.read_text()) | case.published
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    if case.has_transposed_experts:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        turned = {name: value.transpose(1, 2).contiguous() if ".experts." in name else value for name, value in tensors.items()}
        save_file(turned, path, metadata={"format": "pt"})
    (folder / "expected.json").write_text(json.dumps(expected))


def rounded(values: torch.Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def logits(model: torch.nn.Module, seed: int) -> list[dict[str, Any]]:
    """After prompts of one token, of less than a window and of several."""
    generator = torch.Generator().manual_seed(seed + 1)
    runs = []
    for length in [1, 10, 60]:
        tokens = torch.randint(0, 256, (1, length), generator=generator)
        with torch.no_grad():
            row = model(input_ids=tokens, use_cache=False).logits[0, -1].float()
        runs.append({"tokens": tokens[0].tolist(), "values": rounded(row)})
    return runs


def tokens_of_texts(folder: Path) -> Callable[[str], list[int]]:
    path = folder / "sentencepiece.bpe.model"
    if not path.exists():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    pieces = sentencepiece.SentencePieceProcessor(str(path))
    # As XLM-RoBERTa's tokenizer: the pieces of the file come one later, after <s>, <pad>, </s>, <unk>.
    return lambda text: [3 if pieces.IsUnknown(piece) else piece + 1 for piece in pieces.EncodeAsIds(text)]


def scores(model: torch.nn.Module, folder: Path) -> list[dict[str, Any]]:
    ids = tokens_of_texts(folder)
    runs = []
    pairs = [("the fox eats mice", "a bear sleeps in its cave"), ("where rain falls", "old men sing songs of the sea"), ("green hills", "green hills where the fox sleeps")]
    for query, document in pairs:
        tokens = [0, *ids(query), 2, 2, *ids(document), 2]
        with torch.no_grad():
            value = model(input_ids=torch.tensor([tokens])).logits[0].float()
        runs.append({"query": query, "document": document, "tokens": tokens, "values": rounded(value)})
    return runs
