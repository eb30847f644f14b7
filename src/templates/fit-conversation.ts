import { reasoningOf, type TemplateMessage } from '../tokenizer/chat-template.ts';
import type { CallWriter } from '../tools/write-calls.ts';
import {
  type CallForm,
  type FieldForm,
  fieldForms,
  hasRepeatedIds,
  inForm,
  orderResults,
  placeText,
  shortId,
  splitCalls,
  type TextPlace,
  withObjects,
  withUniqueIds,
} from './call-forms.ts';
import { fitNeighbours, fitSystems, type Report, type Takes, withKnownRoles } from './fit-turns.ts';
import { joinParts } from './join-parts.ts';
import { callsOf, textOf, withoutGaps } from './message-texts.ts';
import type { MessageKind } from './shapes.ts';

/** Whether a template takes conversations of this shape, with calls in this form. */
export type TakesInForm = (shape: string, form: CallForm, unlike?: string) => boolean;

export interface FitSettings {
  readonly takes: TakesInForm;
  /** The template has the channels of harmony. */
  readonly isHarmony: boolean;
  /** How calls are written for a template that shows none. */
  readonly writer: CallWriter;
}

/**
 * The conversation in a form in which a template shows all its texts. Messages that the template takes stay as they are. What is changed
 * depends on a message and its neighbours only, so that the prompt of a turn remains the beginning of the next one.
 */
export function fitConversation(
  messages: readonly TemplateMessage[],
  settings: FitSettings,
  report: Report,
): TemplateMessage[] {
  const whole = messages.map(withoutGaps);
  const form = callForm(whole, settings);
  const takes: Takes = (shape, unlike) => settings.takes(shape, form, unlike);
  const known = withKnownRoles(joinParts(orderResults(whole), takes, report), takes);
  const called =
    form.kind === 'fields'
      ? fitCalls(known, { ...settings, form }, takes, report)
      : inForm(known, form, settings.writer);
  if (form.kind !== 'fields' && known.some((message) => callsOf(message).length > 0)) report('calls');
  const fitted = fitNeighbours(fitSystems(called, takes, report), takes, report);
  if (form.kind !== 'fields') return fitted;
  if (form.hasShortIds && fitted.some(hasLongId)) report('ids');
  return inForm(fitted, form, settings.writer);
}

const hasLongId = (message: TemplateMessage): boolean =>
  callsOf(message).some(({ id }) => typeof id === 'string' && id !== shortId(id));

const asSent: CallForm = { kind: 'fields', hasTextArguments: false, hasShortIds: false, hasNames: false };

/** The first form that the template takes; `dialog` if it takes none, because all templates show texts. */
function callForm(messages: readonly TemplateMessage[], { takes }: FitSettings): CallForm {
  if (!messages.some((message) => message.role === 'tool' || callsOf(message).length > 0)) return asSent;
  const fields = fieldForms.find((form) => takes('UCTAUCTAU', form));
  if (fields !== undefined) return fields;
  return takes('UCTAUCTAU', { kind: 'texts' }) ? { kind: 'texts' } : { kind: 'dialog' };
}

/** Changes messages with calls of which the template would lose something. */
function fitCalls(
  messages: readonly TemplateMessage[],
  { isHarmony, form }: FitSettings & { readonly form: FieldForm },
  takes: Takes,
  report: Report,
): readonly TemplateMessage[] {
  const objects = form.hasTextArguments ? messages : withObjects(messages, takes);
  const unique = !hasRepeatedIds(objects) || takes('UCTAUWT') ? objects : withUniqueIds(objects);
  const answered = messages.findLastIndex((message) => message.role === 'assistant' && callsOf(message).length === 0);
  const placed = unique.flatMap((message, i) => {
    if (callsOf(message).length === 0 || textOf(message) === '') return [message];
    const thoughts = reasoningOf(message);
    const hasThoughts = typeof thoughts === 'string' && thoughts !== '';
    const place = textPlace({ hasThoughts, isPast: i < answered, isHarmony }, takes);
    if (place !== 'beside') report(place === 'preamble' ? 'preamble' : 'textBesideCall');
    return placeText(message, hasThoughts ? thoughts : '', place);
  });
  const hasSeveral = placed.some((message) => callsOf(message).length > 1);
  if (!hasSeveral || takes('UPTTAUPTT')) return placed;
  report('severalCalls');
  return splitCalls(placed);
}

/** Templates of reasoning models drop thoughts before the last answer, and may drop the text beside a call with them. */
function textPlace(
  { hasThoughts, isPast, isHarmony }: Readonly<Record<'hasThoughts' | 'isPast' | 'isHarmony', boolean>>,
  takes: Takes,
): TextPlace {
  const shapeOf = (kind: MessageKind): string => (isPast ? `U${kind}TAU` : `U${kind}T${kind}T`);
  if (takes(shapeOf(hasThoughts ? 'H' : 'B'))) return 'beside';
  if (!hasThoughts) return 'before';
  if (isHarmony && takes(shapeOf('Q'))) return 'preamble';
  const end = isPast ? 'TAU' : 'T';
  return takes(`UKC${end}`) || !takes(`UAJ${end}`) ? 'before' : 'beforeThoughts';
}
