import { byName } from '../base/by-name.ts';
import { reasoningOf, type TemplateMessage } from '../tokenizer/chat-template.ts';
import { resultAsText } from './call-forms.ts';
import { callsOf, joinTexts, textOf, withTextOf } from './message-texts.ts';
import type { MessageKind } from './shapes.ts';

/**
 * Whether a template takes conversations of this shape: it refuses none of them, and shows all texts in their order. `unlike`: a shape of
 * other roles whose prompt must be another one, or else the template ignores the role.
 */
export type Takes = (shape: string, unlike?: string) => boolean;

/** Reports what was changed because a template does not take it. */
export type Report = (change: Change) => void;

export const changes = {
  parts: 'it shows only the first part of a content: the parts are joined',
  toolFields: 'it needs a description and parameters of each tool, and one type of each parameter: they are added',
  tools: 'it shows no tools: they are described in the system message',
  calls: 'it shows no calls: they are written as texts',
  ids: 'it takes no ids of calls but those of nine letters and digits: other ids are mapped to such ids',
  severalCalls: 'it takes one call in each message: further calls are messages of their own',
  textBesideCall: 'it shows no text beside a call: the text is a message of its own',
  preamble: 'it shows no text between thoughts and a call: the text follows the thoughts, as in harmony',
  systems: 'it takes one system message at the beginning: the first ones are joined',
  noSystem: "it takes no system message: its text is in the user's message",
  lateSystem: 'it takes no system message after the beginning: its text is in the turn beside it',
  joined: 'it takes no messages of one role in a row: they are joined',
  inserted: 'it requires that roles take turns: an empty message is inserted',
  orphan: 'it takes no result without a call: the result is a message of the user',
} as const;
export type Change = keyof typeof changes;

export function kindOf(message: TemplateMessage): MessageKind | undefined {
  const { role } = message;
  if (role === 'assistant') return callsOf(message).length > 0 ? 'C' : 'A';
  if (role === 'user') return 'U';
  if (role === 'tool') return 'T';
  if (role === 'system') return 'S';
  return role === 'developer' ? 'D' : undefined;
}

const isSystem = (message: TemplateMessage | undefined): boolean =>
  message?.role === 'system' || message?.role === 'developer';

/** Templates that know no `developer` get `system`, which is the older name. */
export function withKnownRoles(messages: readonly TemplateMessage[], takes: Takes): readonly TemplateMessage[] {
  if (!messages.some(({ role }) => role === 'developer') || takes('DUA')) return messages;
  return messages.map((message) => (message.role === 'developer' ? { ...message, role: 'system' } : message));
}

/** Puts system messages where the template takes them. */
export function fitSystems(messages: readonly TemplateMessage[], takes: Takes, report: Report): TemplateMessage[] {
  const end = messages.findIndex((message) => !isSystem(message));
  const leading = messages.slice(0, end === -1 ? messages.length : end);
  const rest = messages.slice(leading.length);
  const first = fitLeading(leading, takes, report);
  const opening = first[0]?.role === 'user' ? first[0] : undefined;
  const late = fitLate(rest, opening, takes, report);
  return opening === undefined ? [...first, ...late] : late;
}

function fitLeading(leading: readonly TemplateMessage[], takes: Takes, report: Report): TemplateMessage[] {
  const [first, ...others] = leading;
  if (first === undefined) return [];
  const kind = kindOf(first)!;
  if (!takes(`${kind}UA`)) {
    report('noSystem');
    return [others.reduce(withTextOf, { ...first, role: 'user' })];
  }
  const second = others[0];
  if (second === undefined) return [...leading];
  const isMixed = others.some(({ role }) => role !== second.role);
  if (!isMixed && takes(`${kind}${kindOf(second)}UA`, `${kind}UUA`)) return [...leading];
  report('systems');
  return [others.reduce(withTextOf, first)];
}

/** `opening`: the text of the leading system messages, if the template takes none. */
function fitLate(
  messages: readonly TemplateMessage[],
  opening: TemplateMessage | undefined,
  takes: Takes,
  report: Report,
): TemplateMessage[] {
  const fitted: TemplateMessage[] = [];
  /** The texts that come before the next message of the user. */
  let waiting = opening;
  const flush = (): void => {
    if (waiting !== undefined) fitted.push(waiting);
    waiting = undefined;
  };
  for (const message of messages) {
    const last = fitted.at(-1);
    if (isSystem(message) && !takesLate(message, takes)) {
      report('lateSystem');
      if (waiting !== undefined) waiting = withTextOf(waiting, message);
      else if (last?.role === 'user') fitted[fitted.length - 1] = withTextOf(last, message);
      else waiting = { ...message, role: 'user' };
    } else if (message.role === 'user' && waiting !== undefined) {
      fitted.push({ ...message, content: textOf(withTextOf(waiting, message)) });
      waiting = undefined;
    } else {
      flush();
      fitted.push(message);
    }
  }
  flush();
  return fitted;
}

const takesLate = (message: TemplateMessage, takes: Takes): boolean => {
  const kind = kindOf(message);
  return takes(`${kind}U${kind}A${kind}U`);
};

/** What a template may not take between two messages, and how it is mended: the first change that the template takes. */
interface Mend {
  /** A conversation in which one message follows the other. */
  readonly shape: string;
  readonly unlike?: string;
  readonly ways: readonly (readonly [shape: string, way: Way])[];
}

type Way = 'join' | 'insertUser' | 'insertAnswer' | 'asText';

/** By the kinds of the two messages. `^`: the beginning, after the system messages. */
const mends: Readonly<Record<string, Mend>> = byName({
  UU: { shape: 'UUAUU', ways: [['UAU', 'join']] },
  AA: { shape: 'UAAU', ways: [['UAU', 'join']] },
  AC: {
    shape: 'UACTAU',
    ways: [
      ['UBTAU', 'join'],
      ['UAECTAU', 'insertUser'],
    ],
  },
  TU: {
    shape: 'UCTUAU',
    ways: [
      ['UCTFUAU', 'insertAnswer'],
      ['UCTAU', 'join'],
    ],
  },
  CU: { shape: 'UCUAU', ways: [['UCFUAU', 'insertAnswer']] },
  UT: {
    shape: 'UTAU',
    ways: [
      ['UUAU', 'asText'],
      ['UAU', 'asText'],
    ],
  },
  AT: { shape: 'UATAU', ways: [['UAUAU', 'asText']] },
  '^T': { shape: 'TAU', ways: [['UAU', 'asText']] },
  '^A': { shape: 'AU', unlike: 'UU', ways: [['EAU', 'insertUser']] },
  '^C': { shape: 'CTAU', ways: [['ECTAU', 'insertUser']] },
});

/** Changes adjacent messages that the template does not take. */
export function fitNeighbours(messages: readonly TemplateMessage[], given: Takes, report: Report): TemplateMessage[] {
  // Ministral refuses an empty answer.
  const emptyAnswer = given('UFU') || !given('UGU') ? '' : ' ';
  const takes: Takes = emptyAnswer === '' ? given : (shape, unlike) => given(shape.replaceAll('F', 'G'), unlike);
  const fitted = new Neighbours(takes, report);
  for (const message of messages) fitted.add(message);
  return fitted
    .end()
    .map((message) =>
      kindOf(message) === 'A' && textOf(message) === '' ? { ...message, content: emptyAnswer } : message,
    );
}

class Neighbours {
  readonly #takes: Takes;
  readonly #report: Report;
  readonly #fitted: TemplateMessage[] = [];
  #hasTurns: boolean = false;

  constructor(takes: Takes, report: Report) {
    this.#takes = takes;
    this.#report = report;
  }

  add(message: TemplateMessage): void {
    const last = this.#fitted.at(-1);
    const way = this.#wayOf(last, message);
    if (way === 'join') {
      this.#report('joined');
      this.#fitted[this.#fitted.length - 1] = joined(last!, message);
    } else if (way === 'asText') {
      this.#report('orphan');
      this.add(resultAsText(message));
    } else {
      if (way !== undefined) this.#insert(way === 'insertUser' ? 'user' : 'assistant');
      this.#fitted.push(message);
      this.#hasTurns ||= !isSystem(message);
    }
  }

  /** Qwen 3.5's template needs a message of the user. */
  end(): readonly TemplateMessage[] {
    const fitted = this.#fitted;
    if (fitted.length === 0 || fitted.some(({ role }) => role === 'user')) return fitted;
    const at = fitted.findIndex((message) => !isSystem(message));
    const begin = at === -1 ? fitted.length : at;
    const [system, turns] = [at === 0 ? '' : 'S', at === -1 ? '' : kindOf(fitted[at]!) === 'C' ? 'CT' : 'A'];
    if (this.#takes(system + turns) || !this.#takes(`${system}E${turns}`)) return fitted;
    this.#report('inserted');
    return [...fitted.slice(0, begin), { role: 'user', content: '' }, ...fitted.slice(begin)];
  }

  #wayOf(last: TemplateMessage | undefined, message: TemplateMessage): Way | undefined {
    const before = this.#hasTurns ? kindOf(last!) : '^';
    const mend = mends[`${before}${kindOf(message)}`];
    if (mend === undefined || this.#takes(mend.shape, mend.unlike)) return undefined;
    return mend.ways.find(([shape]) => this.#takes(shape))?.[1];
  }

  #insert(role: 'user' | 'assistant'): void {
    this.#report('inserted');
    this.#fitted.push({ role, content: '' });
  }
}

/** One message with the texts of both. A result keeps its fields, an answer has the calls of the second and the thoughts of both. */
function joined(first: TemplateMessage, second: TemplateMessage): TemplateMessage {
  const both = withTextOf(first, second);
  if (first.role !== second.role) return both;
  const [before, after] = [first, second].map((message) => String(reasoningOf(message) ?? ''));
  const thoughts = joinTexts(before!, after!);
  return {
    ...both,
    ...(thoughts === '' ? {} : { reasoning_content: thoughts }),
    ...(second.tool_calls === undefined ? {} : { tool_calls: second.tool_calls }),
  };
}
