import { readVocabulary, type Vocabulary, type VocabularySource } from '../../src/grammar/vocabulary.ts';

const pieces = [
  '":',
  '", "',
  '{"',
  '"}',
  '],',
  ' [',
  '\n  ',
  'true',
  'null',
  '12',
  '00',
  '-1',
  'abc',
  ' a',
  'é',
  '🐦',
  '\\u',
  '\\"',
];
const control = ['<|call|>', '<think>'];
const encoder = new TextEncoder();

/** Tokens are bytes, pieces of JSON, two control tokens and EOS. */
export const smallSource: VocabularySource = {
  vocabSize: 256 + pieces.length + control.length + 1,
  tokenBytesMax: 4,
  eosTokenIds: [256 + pieces.length + control.length],
  tokenBytes(id, { special = false } = {}) {
    if (id < 256) return Uint8Array.of(id);
    if (id < 256 + pieces.length) return encoder.encode(pieces[id - 256]);
    return encoder.encode(special ? (control[id - 256 - pieces.length] ?? '<eos>') : '');
  },
  isControl: (id) => id >= 256 + pieces.length,
};

export const smallEos = smallSource.eosTokenIds[0]!;

let vocabulary: Promise<Vocabulary> | undefined;
export const smallVocabulary = (): Promise<Vocabulary> => {
  vocabulary ??= readVocabulary(smallSource);
  return vocabulary;
};
