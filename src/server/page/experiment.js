import { call, eventsOf, jsonOf, messageOf } from './api.js';
import { byId, plural } from './dom.js';
import { pathOfModel, requestModel } from './models.js';

const start = byId('experiment-start', HTMLButtonElement);
const loseNow = byId('experiment-lose', HTMLButtonElement);
const verdict = byId('verdict', HTMLElement);
const MAX_TOKENS = 400;
const LOST_AT_ONCE = 4;
const LOSSES = 5;

/** One request twice, with the same seed: undisturbed, and while its blocks are lost. Compares the two texts. */
export function openExperiment() {
  byId('experiment', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    start.disabled = true;
    run()
      .catch((error) => say(messageOf(error), 'bad'))
      .finally(() => {
        start.disabled = false;
        loseNow.disabled = true;
        loseNow.onclick = null;
      });
  });
}

/**
 * @param {string} text
 * @param {'good' | 'bad' | ''} mood
 */
function say(text, mood = '') {
  verdict.textContent = text;
  verdict.className = `verdict ${mood}`;
}

async function run() {
  const before = byId('text-before', HTMLElement);
  const after = byId('text-after', HTMLElement);
  before.textContent = '';
  after.textContent = '';
  byId('texts', HTMLElement).hidden = false;
  const message = byId('experiment-text', HTMLInputElement).value;
  say('The first answer is written.');
  const undisturbed = await answer(message, before, () => undefined);
  if (undisturbed.text === '') throw new Error('The answer is empty. Try another message.');
  let lost = 0;
  /** @param {string} request */
  const lose = async (request) => {
    const response = await call(pathOfModel('cache/lose'), { method: 'POST', body: { count: LOST_AT_ONCE, request } });
    // The answer may have ended meanwhile.
    if (response.status !== 409) lost += (await jsonOf(response)).blocks.length;
  };
  say('The second answer is written, and blocks are lost.');
  // Five times, in equal intervals of the time that the first answer took.
  const intervalMs = undisturbed.ms / LOSSES;
  /** @type {Promise<void>[]} */
  const losses = [];
  /** @type {number | undefined} */
  let timer;
  const disturbed = await answer(message, after, (id) => {
    if (timer !== undefined) return;
    const loseAndCount = () => {
      if (losses.length === LOSSES) clearInterval(timer);
      else losses.push(lose(id));
    };
    loseNow.disabled = false;
    loseNow.onclick = () => losses.push(lose(id));
    timer = window.setInterval(loseAndCount, intervalMs);
    loseAndCount();
  }).finally(() => clearInterval(timer));
  await Promise.all(losses);
  const again = disturbed.usage?.prompt_tokens_details?.recomputed_tokens ?? 0;
  const facts = `${plural(lost, 'block')} lost, ${plural(again, 'token')} computed again.`;
  if (disturbed.text === undisturbed.text) say(`The texts are equal, character by character. ${facts}`, 'good');
  else say(`The texts differ. ${facts}`, 'bad');
}

/**
 * @param {string} message
 * @param {HTMLElement} element
 * @param {(id: string) => void} onPiece
 */
async function answer(message, element, onPiece) {
  const response = await call('v1/chat/completions', {
    method: 'POST',
    body: {
      messages: [{ role: 'user', content: message }],
      ...requestModel(),
      seed: 42,
      temperature: 0.8,
      max_tokens: MAX_TOKENS,
      // Blocks of the first answer would replace lost blocks of the second one.
      cache_salt: String(Math.random()),
      stream: true,
      stream_options: { include_usage: true },
    },
  });
  const startMs = performance.now();
  let text = '';
  let usage;
  for await (const event of eventsOf(response)) {
    const delta = event.choices?.[0]?.delta ?? {};
    const piece = (delta.reasoning_content ?? '') + (delta.content ?? '');
    usage = event.usage ?? usage;
    if (piece === '') continue;
    text += piece;
    element.append(piece);
    element.scrollTop = element.scrollHeight;
    onPiece(event.id);
  }
  return { text, usage, ms: performance.now() - startMs };
}
