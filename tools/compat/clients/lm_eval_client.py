"""EleutherAI's lm-evaluation-harness: its requests for the likelihood of a continuation and for a text."""

import tempfile

from features import MODEL, URL, report
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI
from word_tokenizer import save_tokenizer

tokenizer = save_tokenizer(tempfile.mkdtemp())
model = LocalCompletionsAPI(
    model=MODEL, base_url=f"{URL}/v1/completions", tokenizer=tokenizer, tokenizer_backend="huggingface", max_retries=1
)


def request(kind: str, arguments: tuple) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def loglikelihood() -> None:
    pairs = [("the one that", " he was"), ("it is", " a")]
    results = model.loglikelihood([request("loglikelihood", pair) for pair in pairs], disable_tqdm=True)
    assert len(results) == 2 and all(logprob < 0 and greedy in (True, False) for logprob, greedy in results), results


def generate() -> None:
    asked = [request("generate_until", ("it is the", {"until": ["END"], "max_gen_toks": 8}))]
    assert model.generate_until(asked, disable_tqdm=True)[0]


report({"loglikelihood": loglikelihood, "generate_until": generate})
