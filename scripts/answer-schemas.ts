/**
 * Writes the JSON schemas of all answers of the server, from the types that the code has for them: `src/server/openapi/answer-schemas.json`.
 *
 *     npm run --silent build && node dist/scripts/answer-schemas.js
 */
import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { API, type Checker, SymbolFlags, type Symbol as TypeSymbol } from 'typescript/unstable/sync';

type Schema = Readonly<Record<string, unknown>>;
type Checked = ReturnType<Checker['getDeclaredTypeOfSymbol']>;

export const schemaFile = 'src/server/openapi/answer-schemas.json';

const files = [
  'apis/openai/types',
  'apis/responses/response-types',
  'apis/anthropic/message-types',
  'apis/ollama/ollama-types',
  'apis/llama-server/infill-types',
  'http/server-errors',
].map((name) => `src/server/${name}.ts`);
/** Of files that have more than types of answers. */
const only: Readonly<Record<string, readonly string[]>> = { 'src/server/http/server-errors.ts': ['OpenAiErrorBody'] };

/** Types whose values are written as JSON in another form than their own. */
const written: Readonly<Record<string, () => Schema>> = {
  RawJson: () => ({ type: 'object' }),
  JsonObject: () => ({ type: 'object' }),
};

const reference = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` });

const inPascalCase = (name: string): string =>
  name.replace(/(?:^|[^A-Za-z0-9]+)([A-Za-z0-9])/g, (_, letter: string) => letter.toUpperCase());

class AnswerSchemas {
  readonly schemas: Record<string, Schema> = {};
  readonly #checker: Checker;
  /** Names of exported types. */
  readonly #exported: ReadonlySet<string>;

  constructor(checker: Checker, exported: ReadonlySet<string>) {
    this.#checker = checker;
    this.#exported = exported;
  }

  /** An interface or alias that has a name. */
  named(name: string, type: Checked, symbol: TypeSymbol): Schema {
    if (this.schemas[name] === undefined) {
      this.schemas[name] = {};
      const description = symbol.getDocumentationComment(this.#checker);
      this.schemas[name] = { ...(description === '' ? {} : { description }), ...this.#structure(type, name) };
    }
    return reference(name);
  }

  /** `place`: where the type is, for the name of an object that has none. */
  of(type: Checked, place: string): Schema {
    const alias = type.getAliasSymbol();
    const special = written[alias?.name ?? type.getSymbol()?.name ?? ''];
    if (special !== undefined) return special();
    const symbol = type.getSymbol();
    const isNamed = type.isClassOrInterface() && symbol !== undefined && !this.#checker.isArrayType(type);
    if (isNamed && !type.isTypeReference()) return this.named(symbol.name, type, symbol);
    if (alias !== undefined && this.#exported.has(alias.name)) return this.named(alias.name, type, alias);
    return this.#withName(this.#structure(type, place), place);
  }

  /** Programs that write clients need a name for each object, and differ in the names that they find for objects without one. */
  #withName(schema: Schema, place: string): Schema {
    if (schema.type !== 'object' || schema.properties === undefined) return schema;
    const text = JSON.stringify(schema);
    for (let i = 1; ; i++) {
      const name = i === 1 ? place : `${place}${i}`;
      const known = this.schemas[name];
      if (known !== undefined && JSON.stringify(known) !== text) continue;
      this.schemas[name] = schema;
      return reference(name);
    }
  }

  #structure(type: Checked, place: string): Schema {
    if (type.isStringLiteralType() || type.isNumberLiteralType()) return { const: type.value };
    const text = this.#checker.typeToString(type);
    // Without a format, clients in Go have 32 bits for seconds since 1970.
    if (text === 'number') return { type: 'number', format: 'double' };
    if (['string', 'boolean', 'null', 'object'].includes(text)) return { type: text };
    if (text === 'true' || text === 'false') return { const: text === 'true' };
    if (text === 'unknown' || text === 'any') return {};
    if (type.isUnionType()) return this.#union(type.getTypes(), place);
    if (this.#checker.isArrayType(type) && type.isTypeReference()) {
      return { type: 'array', items: this.of(this.#checker.getTypeArguments(type)[0]!, `${place}Item`) };
    }
    // `readonly []`
    if (this.#checker.isTupleType(type)) return { type: 'array', items: {}, maxItems: 0 };
    return this.#object(type, place);
  }

  #union(types: readonly Checked[], place: string): Schema {
    // A lazy list is written as the list that is the other form of its type.
    const isWritten = (each: Checked): boolean =>
      this.#checker.typeToString(each) !== 'undefined' && each.getSymbol()?.name !== 'LazyList';
    const all = types.filter(isWritten).map((each) => this.of(each, `${place}${this.#kindOf(each)}`));
    const values = all.filter((schema) => 'const' in schema).map((schema) => schema.const);
    const isBoolean = values.includes(true) && values.includes(false);
    const rest = values.filter((value) => !isBoolean || typeof value !== 'boolean');
    const forms = [
      ...all.filter((schema) => !('const' in schema)),
      ...(isBoolean ? [{ type: 'boolean' }] : []),
      ...(rest.length === 0 ? [] : [rest.length === 1 ? { const: rest[0] } : { enum: rest }]),
    ];
    return forms.length === 1 ? forms[0]! : { anyOf: forms };
  }

  /** The type of an event or a part distinguishes it from the others. */
  #kindOf(type: Checked): string {
    const kind = this.#checker.getPropertiesOfType(type).find(({ name }) => name === 'type');
    const literal = kind && this.#checker.getTypeOfSymbol(kind);
    return literal?.isStringLiteralType() === true ? inPascalCase(literal.value) : '';
  }

  #object(type: Checked, place: string): Schema {
    const properties = this.#checker.getPropertiesOfType(type);
    const required = properties.filter(({ flags }) => (flags & SymbolFlags.Optional) === 0).map(({ name }) => name);
    const [values] = this.#checker.getIndexInfosOfType(type);
    return {
      type: 'object',
      ...(properties.length === 0
        ? {}
        : { properties: Object.fromEntries(properties.map((each) => this.#property(each, place))) }),
      ...(required.length === 0 ? {} : { required }),
      ...(values === undefined ? {} : { additionalProperties: this.of(values.valueType, `${place}Value`) }),
    };
  }

  #property(symbol: TypeSymbol, place: string): [string, Schema] {
    const description = symbol.getDocumentationComment(this.#checker);
    const schema = this.of(this.#checker.getTypeOfSymbol(symbol)!, place + inPascalCase(symbol.name));
    return [symbol.name, description === '' ? schema : { description, ...schema }];
  }
}

export function answerSchemas(): Readonly<Record<string, Schema>> {
  const api = new API({ cwd: resolve('.') });
  try {
    using snapshot = api.updateSnapshot({ openProjects: [resolve('tsconfig.json')] });
    const { checker, program } = snapshot.getProjects()[0]!;
    const symbols = files.flatMap((file) => {
      const module = checker.getSymbolAtLocation(program.getSourceFile(resolve(file))!)!;
      const isType = ({ flags }: TypeSymbol): boolean =>
        (flags & (SymbolFlags.Interface | SymbolFlags.TypeAlias)) !== 0;
      const types = checker.getExportsOfModule(module).filter(isType);
      return types.filter(({ name }) => only[file]?.includes(name) !== false);
    });
    const found = new AnswerSchemas(checker, new Set(symbols.map(({ name }) => name)));
    for (const symbol of symbols) found.named(symbol.name, checker.getDeclaredTypeOfSymbol(symbol), symbol);
    return found.schemas;
  } finally {
    api.close();
  }
}

if (process.argv[1]?.endsWith('answer-schemas.js') === true) {
  writeFileSync(schemaFile, `${JSON.stringify(answerSchemas(), null, 2)}\n`);
}
