import { type Command, InvalidArgumentError, type Option } from 'commander';
import type { Document, Node, Pair } from 'yaml';
import { didYouMean } from '../base/nearest-name.ts';
import { configFileInvalid } from './cli-errors.ts';
import { readTextFile } from './text-input.ts';

/**
 * Before the action of a command with `--config`: reads the flags of the YAML file, with vLLM's rules. Keys are the names of
 * flags, and `model` is the argument. Flags of the command line win, also over all values of a flag that may be repeated.
 * @throws configFileInvalid, fileUnreadable
 */
export async function readConfigFlag(command: Command): Promise<void> {
  const path = command.getOptionValue('config') as string | undefined;
  if (path === undefined) return;
  const text = await readTextFile('configuration file', path);
  // Imported when it is needed, because most starts have no such file.
  const yaml = await import('yaml');
  const document: Document = yaml.parseDocument(text);
  const fail = (reason: string): never => {
    throw configFileInvalid({ path, reason });
  };
  const [error] = document.errors;
  if (error !== undefined) fail(`it is not YAML: ${error.message.split('\n')[0]!.replace(/:$/, '')}`);
  const { contents } = document;
  if (contents === null) return;
  if (!yaml.isMap(contents)) return fail('it must have a line `name: value` for each flag');
  for (const { key, value } of contents.items as Pair<Node, Node | null>[]) {
    const name = String(yaml.isScalar(key) ? key.value : key).replaceAll('_', '-');
    try {
      if (name === 'models' && command.name() === 'serve')
        command.setOptionValueWithSource('models', readSections(yaml, value, document), 'config');
      else setFlag(command, name, readValue(yaml, value, document));
    } catch (reason) {
      if (!(reason instanceof InvalidArgumentError)) throw reason;
      fail(`\`${name}\`: ${reason.message}`);
    }
  }
}

export type FlagValue = boolean | string | readonly string[];

/** The settings of one model: flags by name, and `model`. */
export type ModelSection = ReadonlyMap<string, FlagValue>;

/** A scalar as it is written, because `0123` would lose its zero as a number; a map, such as a config in JSON, as JSON. */
function readValue(yaml: typeof import('yaml'), node: Node | null, document: Document): FlagValue {
  if (yaml.isAlias(node)) return readValue(yaml, node.resolve(document) ?? null, document);
  if (yaml.isScalar(node)) {
    if (typeof node.value === 'boolean') return node.value;
    if (node.value !== null) return node.source ?? String(node.value);
  }
  if (yaml.isMap(node)) return JSON.stringify(node.toJS(document));
  if (yaml.isSeq(node)) {
    return node.items.map((item) => {
      const value = readValue(yaml, item as Node | null, document);
      if (typeof value === 'string') return value;
      throw new InvalidArgumentError('It must be a list of texts or numbers.');
    });
  }
  throw new InvalidArgumentError('It has no value. Remove the line, or write a value.');
}

/** The section `models`: the settings of each model. */
function readSections(
  yaml: typeof import('yaml'),
  node: Node | null,
  document: Document,
): ReadonlyMap<string, ModelSection> {
  const fail = (): never => {
    throw new InvalidArgumentError('It must have the names of models, each with lines `name: value`.');
  };
  if (!yaml.isMap(node)) return fail();
  const sections = (node.items as Pair<Node, Node | null>[]).map(({ key, value }): [string, ModelSection] => {
    if (value !== null && !yaml.isMap(value) && !(yaml.isScalar(value) && value.value === null)) fail();
    const items = yaml.isMap(value) ? (value.items as Pair<Node, Node | null>[]) : [];
    const flags = items.map(({ key: flag, value: given }): [string, FlagValue] => [
      String(yaml.isScalar(flag) ? flag.value : flag).replaceAll('_', '-'),
      readValue(yaml, given, document),
    ]);
    return [String(yaml.isScalar(key) ? key.value : key), new Map(flags)];
  });
  return new Map(sections);
}

const notInFile: ReadonlySet<string> = new Set(['config', 'help-all']);

/** @throws InvalidArgumentError */
export function setFlag(command: Command, name: string, value: FlagValue): void {
  if (name === 'model') {
    setModel(command, value);
    return;
  }
  const option = command.options.find(({ long }) => long === `--${name}`);
  if (option === undefined || notInFile.has(name)) {
    const names = command.options.flatMap(({ long }) =>
      notInFile.has(long?.slice(2) ?? '') ? [] : (long?.slice(2) ?? []),
    );
    throw new InvalidArgumentError(`There is no such flag.${didYouMean(name, [...names, 'model'])}`);
  }
  const attribute = option.attributeName();
  if (command.getOptionValueSource(attribute) === 'cli') return;
  command.setOptionValueWithSource(attribute, parsed(option, value), 'config');
}

function setModel(command: Command, value: FlagValue): void {
  const isList = command.registeredArguments[0]?.variadic === true;
  if (!isList && typeof value !== 'string') throw new InvalidArgumentError('It must be a path or a name.');
  if (typeof value === 'boolean') throw new InvalidArgumentError('It must be a path or a name, or a list of them.');
  const given = command.processedArgs[0] as string | readonly string[] | undefined;
  if (given === undefined || given.length === 0) command.processedArgs[0] = isList ? [value].flat() : value;
}

/** What the command line would give for this value. */
function parsed(option: Option, value: FlagValue): unknown {
  if (!option.required && !option.optional) {
    if (typeof value === 'boolean') return option.negate ? !value : value;
    throw new InvalidArgumentError('It must be true or false.');
  }
  const texts = typeof value === 'object' ? value : [String(value)];
  const { parseArg } = option;
  if (parseArg === undefined) return texts.join(',');
  if (!isRepeatable(option)) return parseArg(texts.join(','), undefined);
  let all: unknown;
  for (const text of texts) all = parseArg(text, all);
  return all;
}

/** Parsers of such options take the value so far too; those of commander's choices do, but do not use it. */
const isRepeatable = ({ parseArg, argChoices }: Option): boolean => parseArg?.length === 2 && argChoices === undefined;
