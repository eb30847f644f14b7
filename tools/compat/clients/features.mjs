/** As `features.py`, for clients of npm: runs the features of one client and prints a JSON line for each. */
import assert from 'node:assert';

const { COMPAT_URL, COMPAT_MODEL, COMPAT_CALLS } = process.env;
export const url = COMPAT_URL ?? 'http://127.0.0.1:8000';
export const model = COMPAT_MODEL ?? 'kvasir-demo';
/** Whether the model calls tools where it may. */
const callsTools = COMPAT_CALLS !== undefined;

export const question = 'What is the weather in Rome?';
export const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string', maxLength: 12 } },
      required: ['city'],
      additionalProperties: false,
    },
  },
};
export const person = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 0, maximum: 99 } },
  required: ['name', 'age'],
  additionalProperties: false,
};

/** With tools, where the model decides. */
export const checkAnswer = (content, calls) =>
  assert(calls?.length > 0 || (content && !callsTools), `no call: ${JSON.stringify(content)}`);

/** The arguments of a call, parsed or as text. */
export function checkCity(given) {
  const { city } = typeof given === 'string' ? JSON.parse(given) : given;
  assert.equal(typeof city, 'string');
}

export function checkPerson(text) {
  const { name, age } = JSON.parse(text);
  assert(typeof name === 'string' && Number.isInteger(age), `not a person: ${text}`);
}

export async function report(features) {
  for (const [feature, run] of Object.entries(features)) {
    let outcome = { feature, works: true };
    try {
      await run();
    } catch (error) {
      // Every failure is a result.
      outcome = { feature, works: false, detail: `${error.message || error}`.replace(/\s+/g, ' ').slice(0, 300) };
    }
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
  }
}
