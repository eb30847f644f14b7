/**
 * Texts for comparing tokenizers: equal in each run and on each machine. Many scripts, code, runs of white space, emoji, names of control
 * tokens, numbers, any code points, and long runs.
 */
import { crc32 } from 'node:zlib';
import { Prng } from '../../src/base/prng.ts';

export const textCount = 2000;

/** Of several scripts, and written for this file. In NFC. */
const sentences = [
  'The harbour was quiet before dawn, and the boats hadn’t left.',
  "We'll see what they've done; it isn't what I'd expected, she said.",
  'Über den Dächern hing Nebel, größer als die Straße, süß wie Äpfel.',
  'Où est passée la clé ? Ça dépend de l’été, naïve Zoë.',
  '¿Dónde está el niño? ¡Mañana volverá con la cigüeña!',
  'Zażółć gęślą jaźń; łódź płynie przez Śląsk.',
  'Příliš žluťoučký kůň úpěl ďábelské ódy.',
  'Iğdır’da ışık söndü, İstanbul’da çay içtik.',
  'Trời đã sáng, người ta đi chợ mua gạo và rau.',
  'Старый мост скрипел, но ещё держался под снегом.',
  'Ранок був тихий, їжак спав під ґанком.',
  'Ο ποταμός κυλάει αργά, και τα πουλιά σώπασαν.',
  'השמש זרחה מעל ההרים, והילדים הלכו לבית הספר.',
  'كان البحر هادئًا في الصباح، ثم هبّت ريحٌ قوية.',
  'در باغ درختان انار و گل‌های سرخ بود.',
  'नदी के किनारे एक पुराना पेड़ था, जिसकी छाया घनी थी।',
  'নদীর ধারে একটি গ্রাম, সেখানে বৃষ্টি পড়ে।',
  'மலையின் மேல் மேகங்கள் தங்கின.',
  'కొండపై చల్లని గాలి వీచింది.',
  'ฝนตกหนักเมื่อคืนนี้ และแม่น้ำก็เอ่อล้น',
  'ຕອນເຊົ້າມີໝອກ',
  'ភ្លៀងធ្លាក់នៅលើវាលស្រែ',
  'မိုးရွာနေသည်။',
  'ღამით ქარი ქროდა და მთვარე ანათებდა.',
  'Լեռան վրա ձյուն կար։',
  'ዝናቡ በሌሊት ዘነበ።',
  'བོད་ཀྱི་རི་བོ།',
  '清晨的湖面上有一只小船，渔夫在唱歌。',
  '臺灣的山很高，雲在腳下。',
  '昨日の夜、カエルが池で鳴いていた。ｶﾀｶﾅも。',
  '오늘 아침에 눈이 내렸고, 아이들은 밖에서 놀았다.',
  'Mælingar í Þingvallavatni ðe æðele ŋoŋ.',
  '𝓜𝒶𝓉𝒽 𝔸𝔹ℂ ∑ᵢ xᵢ² ≤ ∞, ½ ⅓ № ™ ﬁ ﬂ',
] as const;

const code = [
  'def f(x):\n    if x > 1:\n        return x * f(x - 1)\n    return 1\n',
  'for (let i = 0; i < n; i++) {\n\tsum += a[i] ?? 0;\n}\n',
  '#include <stdio.h>\r\nint main(void)\r\n{\r\n\tprintf("%d\\n", 42);\r\n}\r\n',
  'SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 GROUP BY a.id;',
  '{"name": "fox", "legs": 4, "tags": ["red", "grey"], "nested": {"a": null}}',
  '<div class="box"><p>1 &lt; 2</p><!-- c --></div>',
  'fn main() -> Result<(), Box<dyn Error>> { let v: Vec<u8> = vec![]; Ok(()) }',
  '$ git commit -m "fix(kv): release" && rm -rf ./build/*.o  # done',
  'x = [i**2 for i in range(10) if i % 2 == 0]; print(f"{x!r:>20}")',
  '\\begin{align} \\frac{\\partial f}{\\partial x} &= 0 \\end{align}',
  'https://example.com/a/b?c=d&e=%20f#g user@example.org +49-30-1234567',
  '| a | b |\n|---|---|\n| **1** | `2` |\n\n- [ ] item\n  1. one\n',
] as const;

const spaces = [
  ' ',
  '  ',
  '    ',
  '\t',
  '\n',
  '\n\n',
  '\r\n',
  '\r',
  '\u00a0',
  '\u3000',
  '\u2028',
  '\u200b',
  '\v',
  '\f',
];
const emoji = ['🙂', '👍🏽', '👩‍👩‍👧‍👦', '🇩🇪', '🏳️‍🌈', '❤️', '1️⃣', '🧑🏿‍🚀', '⌚', '🫠', '🏴\u{e0067}\u{e0062}\u{e007f}'];
const names = [
  ...['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<|file_sep|>', '<|fim_prefix|>', '<repo_name>', '<tool_call>'],
  ...['<bos>', '<eos>', '<pad>', '<unk>', '<start_of_turn>', '<end_of_turn>', '<unused7>', '<mask>', '[multimodal]'],
  ...['</s>', '<s>', '<0x0A>', '<|im_start', 'im_end|>', '<|', '|>', '<h1>', '</table>', '▁', 'Ġ', 'Ċ'],
];
const ends = [
  "'s",
  "'LL",
  "'re",
  '’t',
  "'",
  '...',
  '!?',
  ' - ',
  '_',
  '—',
  ',',
  ' "',
  '"',
  ')',
  '(',
  '\u0301',
  '\u200d',
];
const letters = ['a', 'é', 'я', '中', '0', ' ', '\n', '.', 'ab', '🙂', '\u00a0', 'न', '=', '\t'];

function wordsOf(prng: Prng): string {
  const words = prng.pick(sentences).split(' ');
  const start = prng.between(0, words.length - 1);
  return words.slice(start, start + prng.between(1, 8)).join(' ');
}

/** Any code point of the planes with characters, but no surrogate; more often one with a small number. */
function anyCharacter(prng: Prng): string {
  const limit = prng.pick([0x7f, 0x24f, 0x2fff, 0xffff, 0x1ffff, 0x3ffff]);
  const point = prng.between(0, limit);
  return point >= 0xd800 && point <= 0xdfff ? '\ufffd' : String.fromCodePoint(point);
}

function number(prng: Prng): string {
  const digits = String(prng.uint32()).slice(0, prng.between(1, 10));
  return prng.pick([digits, `${digits}.${prng.between(0, 99)}`, `-${digits}e${prng.between(1, 30)}`, `٣${digits}७`]);
}

const fragments: readonly ((prng: Prng) => string)[] = [
  wordsOf,
  (prng) => prng.pick(sentences),
  (prng) => prng.pick(code),
  (prng) => Array.from({ length: prng.between(1, 6) }, () => prng.pick(spaces)).join(''),
  (prng) => prng.pick(emoji).repeat(prng.between(1, 3)),
  (prng) => prng.pick(names),
  (prng) => prng.pick(ends),
  number,
  (prng) => Array.from({ length: prng.between(1, 12) }, () => anyCharacter(prng)).join(''),
  (prng) => prng.pick(letters).repeat(prng.between(1, 60)),
];

/** Whether names of control tokens in the text become control tokens, as in the text of a chat template. */
export const parsesSpecial = (index: number): boolean => index % 4 >= 2;

/** Short texts of a few fragments, texts of one kind of fragment, and each fiftieth text with a long run. */
export function textsToTokenize(count: number = textCount): string[] {
  const prng = new Prng(20261126);
  return Array.from({ length: count }, (_, index) => {
    if (index % 50 === 49) return prng.pick(letters).repeat(prng.between(500, 4000)) + wordsOf(prng);
    const kinds = index % 2 === 0 ? fragments : [prng.pick(fragments)];
    const pieces = Array.from({ length: prng.between(1, 12) }, () => prng.pick(kinds)(prng));
    return pieces.join(prng.pick(['', '', ' ']));
  });
}

/** Of a text's tokens. A list of them is a small file. */
export const checksumOf = (tokens: Iterable<number>): number => crc32(new Uint8Array(Int32Array.from(tokens).buffer));
