"""Engines of PyPI for run.mjs: `python engines.py xgrammar 100` reads cases and writes what the engine's grammars allow, as engine-kvasir.mjs
does. Tokens are bytes."""
import base64
import json
import random
import signal
import sys
import time
import types

import numpy

EOS = 256
STEPS_MAX = 400
SECONDS_MAX = 40
CLOSING = numpy.zeros(257, bool)
CLOSING[list(b'"}],:0')] = True


class XGrammar:
    """xgrammar imports torch and transformers for tensors and tokenizers. numpy's arrays do."""

    def __init__(self, vocabulary=None, eos=EOS):
        import tvm_ffi  # It looks for torch.

        if 'torch' not in sys.modules:
            self.stand_in()
        import xgrammar

        self.xgrammar = xgrammar
        vocabulary = vocabulary or [bytes([i]) for i in range(256)] + [b'</s>']
        info = xgrammar.TokenizerInfo(
            vocabulary, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(vocabulary), stop_token_ids=[eos]
        )
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = numpy.zeros((1, (len(vocabulary) + 31) // 32), numpy.int32)

    @staticmethod
    def stand_in():
        class Module(types.ModuleType):
            def __getattr__(self, name):
                return object

        torch = Module('torch')
        torch.int32, torch.tensor, torch.full = numpy.int32, numpy.array, numpy.full
        torch.Tensor = numpy.ndarray
        sys.modules.update(torch=torch, transformers=Module('transformers'))

    def compile(self, schema):
        return self.compiler.compile_json_schema(json.dumps(schema))

    def start(self, grammar):
        return self.xgrammar.GrammarMatcher(grammar)

    def allowed(self, matcher):
        self.mask[:] = -1
        matcher.fill_next_token_bitmask(self.mask)
        return self.mask.view(numpy.uint8)[0]

    def advance(self, matcher, token):
        return matcher.accept_token(token)


class LLGuidance:
    def __init__(self, vocabulary=None, eos=EOS):
        import llguidance

        self.llguidance = llguidance
        vocabulary = vocabulary or [bytes([i]) for i in range(256)] + [b'</s>']

        class Tokenizer:
            eos_token_id = eos
            bos_token_id = None
            tokens = vocabulary
            special_token_ids = [eos]

            def __call__(self, text):
                return list(text if isinstance(text, bytes) else text.encode())

        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))

    def compile(self, schema):
        grammar = self.llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = self.llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.get_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, matcher):
        return matcher.deep_copy()

    def allowed(self, matcher):
        return numpy.frombuffer(matcher.compute_bitmask(), numpy.uint8)

    def advance(self, matcher, token):
        return matcher.consume_token(token)


class OutlinesCore:
    """A regular expression for a schema, and an index of its states."""

    def __init__(self):
        import outlines_core

        self.core = outlines_core
        self.vocabulary = outlines_core.Vocabulary(EOS, {bytes([i]): [i] for i in range(256)})

    def compile(self, schema):
        regex = self.core.json_schema.build_regex_from_schema(json.dumps(schema))
        if len(regex) > 20_000:
            raise ValueError('its regular expression is longer than 20,000 characters')
        return self.core.Index(regex, self.vocabulary)

    def start(self, index):
        return self.core.Guide(index)

    def allowed(self, guide):
        bits = numpy.zeros(264, numpy.uint8)
        bits[guide.get_tokens()] = 1
        return numpy.packbits(bits, bitorder='little')

    def advance(self, guide, token):
        guide.advance(token)
        return True


def bits_of(mask):
    return numpy.unpackbits(mask, bitorder='little')[:257].astype(bool)


def allows(engine, grammar, text):
    matcher = engine.start(grammar)
    for byte in text.encode():
        if not bits_of(engine.allowed(matcher))[byte]:
            return False
        engine.advance(matcher, byte)
    return bool(bits_of(engine.allowed(matcher))[EOS])


def random_output(engine, grammar, rng):
    """None if it has not ended after some steps."""
    matcher = engine.start(grammar)
    output = bytearray()
    for step in range(STEPS_MAX):
        bits = bits_of(engine.allowed(matcher))
        tokens = numpy.flatnonzero(bits[:256])
        if bits[EOS] and (len(tokens) == 0 or rng.random() < 0.6):
            return output.decode(errors='replace')
        if len(tokens) == 0:
            return None
        ending = numpy.flatnonzero(bits[:256] & CLOSING[:256])
        use = ending if len(ending) > 0 and rng.random() < (0.9 if step > 60 else 0.4) else tokens
        token = int(use[rng.randrange(len(use))])
        output.append(token)
        engine.advance(matcher, token)
    return None


def measured(engine, case):
    """CPU time to compile, and to compute the masks of all tokens of a value. None if it is refused."""
    try:
        begin = time.process_time()
        grammar = engine.compile(case['schema'])
        compiled = time.process_time()
        matcher = engine.start(grammar)
        for token in case['tokens']:
            engine.allowed(matcher)
            if not engine.advance(matcher, token):
                return None
        engine.allowed(matcher)
        return dict(compileMs=(compiled - begin) * 1000, masksMs=(time.process_time() - compiled) * 1000)
    except BaseException:
        return None


def bench():
    with open('results/vocabulary.json') as file:
        vocabulary = [base64.b64decode(token) for token in json.load(file)] + [b'</s>']
    engine = {'xgrammar': XGrammar, 'llguidance': LLGuidance}[sys.argv[1]](vocabulary, len(vocabulary) - 1)
    with open('results/walks.jsonl') as file:
        cases = [json.loads(line) for line in file]
    # As in bench.mjs: the first round warms up.
    rounds = [[measured(engine, case) for case in cases] for _ in range(6)][1:]
    for found in zip(*rounds):
        print(json.dumps(found[0] and {name: sorted(one[name] for one in found)[2] for name in found[0]}), flush=True)


def main():
    if sys.argv[2] == 'bench':
        return bench()
    engine = {'xgrammar': XGrammar, 'llguidance': LLGuidance, 'outlines-core': OutlinesCore}[sys.argv[1]]()
    count = int(sys.argv[2])
    # A case that takes longer ends the process, and run.mjs goes on with the next.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in sys.stdin:
        signal.alarm(SECONDS_MAX)
        case = json.loads(line)
        result = dict(library=case['library'], name=case['name'], outputs=[], forbidden=[])
        try:
            grammar = engine.compile(case['schema'])
            for value in case['valid']:
                texts = [json.dumps(value, ensure_ascii=False, separators=s) for s in [(',', ':'), (', ', ': ')]]
                if not any(allows(engine, grammar, text) for text in texts):
                    result['forbidden'].append(value)
            rng = random.Random(1)
            outputs = [random_output(engine, grammar, rng) for _ in range(count)]
            result['outputs'] = [output for output in outputs if output is not None]
        except BaseException as error:  # Panics of Rust are no Exception.
            result['refused'] = str(error)[:200]
        print(json.dumps(result), flush=True)


if __name__ == '__main__':
    main()
