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
  'openai-types',
  'responses/response-types',
  'anthropic/message-types',
  'ollama/ollama-types',
  'infill/infill-types',
  'server-errors',
].map((name) => `src/server/${name}.ts`);
/** Of files that have more than types of answers. */
const only: Readonly<Record<string, readonly string[]>> = { 'src/server/server-errors.ts': ['OpenAiErrorBody'] };

/** Types whose values are written as JSON in another form than their own. */
const written: Readonly<Record<string, () => Schema>> = {
  RawJson: () => ({ type: 'object' }),
  JsonObject: () => ({ type: 'object' }),
};

class AnswerSchemas {
  readonly schemas: Record<string, Schema> = {};
  readonly #checker: Checker;

  constructor(checker: Checker) {
    this.#checker = checker;
  }

  /** An interface or alias that has a name. */
  named(name: string, type: Checked, symbol: TypeSymbol): Schema {
    if (this.schemas[name] === undefined) {
      this.schemas[name] = {};
      const description = symbol.getDocumentationComment(this.#checker);
      this.schemas[name] = { ...(description === '' ? {} : { description }), ...this.#structure(type) };
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  of(type: Checked): Schema {
    const alias = type.getAliasSymbol();
    const special = written[alias?.name ?? type.getSymbol()?.name ?? ''];
    if (special !== undefined) return special();
    const symbol = type.getSymbol();
    const isNamed = type.isClassOrInterface() && symbol !== undefined && !this.#checker.isArrayType(type);
    if (isNamed && !type.isTypeReference()) return this.named(symbol.name, type, symbol);
    return this.#structure(type);
  }

  #structure(type: Checked): Schema {
    if (type.isStringLiteralType() || type.isNumberLiteralType()) return { const: type.value };
    const text = this.#checker.typeToString(type);
    if (['string', 'number', 'boolean', 'null', 'object'].includes(text)) return { type: text };
    if (text === 'true' || text === 'false') return { const: text === 'true' };
    if (text === 'unknown' || text === 'any') return {};
    if (type.isUnionType()) return this.#union(type.getTypes());
    if (this.#checker.isArrayType(type) && type.isTypeReference()) {
      return { type: 'array', items: this.of(this.#checker.getTypeArguments(type)[0]!) };
    }
    // `readonly []`
    if (this.#checker.isTupleType(type)) return { type: 'array', maxItems: 0 };
    return this.#object(type);
  }

  #union(types: readonly Checked[]): Schema {
    // A lazy list is written as the list that is the other form of its type.
    const isWritten = (each: Checked): boolean =>
      this.#checker.typeToString(each) !== 'undefined' && each.getSymbol()?.name !== 'LazyList';
    const all = types.filter(isWritten).map((each) => this.of(each));
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

  #object(type: Checked): Schema {
    const properties = this.#checker.getPropertiesOfType(type);
    const required = properties.filter(({ flags }) => (flags & SymbolFlags.Optional) === 0).map(({ name }) => name);
    const [values] = this.#checker.getIndexInfosOfType(type);
    return {
      type: 'object',
      ...(properties.length === 0
        ? {}
        : { properties: Object.fromEntries(properties.map((each) => this.#property(each))) }),
      ...(required.length === 0 ? {} : { required }),
      ...(values === undefined ? {} : { additionalProperties: this.of(values.valueType) }),
    };
  }

  #property(symbol: TypeSymbol): [string, Schema] {
    const description = symbol.getDocumentationComment(this.#checker);
    const schema = this.of(this.#checker.getTypeOfSymbol(symbol)!);
    return [symbol.name, description === '' ? schema : { description, ...schema }];
  }
}

export function answerSchemas(): Readonly<Record<string, Schema>> {
  const api = new API({ cwd: resolve('.') });
  try {
    using snapshot = api.updateSnapshot({ openProjects: [resolve('tsconfig.json')] });
    const { checker, program } = snapshot.getProjects()[0]!;
    const found = new AnswerSchemas(checker);
    for (const file of files) {
      const source = program.getSourceFile(resolve(file))!;
      const module = checker.getSymbolAtLocation(source)!;
      for (const symbol of checker.getExportsOfModule(module)) {
        if ((symbol.flags & (SymbolFlags.Interface | SymbolFlags.TypeAlias)) === 0) continue;
        if (only[file]?.includes(symbol.name) === false) continue;
        found.named(symbol.name, checker.getDeclaredTypeOfSymbol(symbol), symbol);
      }
    }
    return found.schemas;
  } finally {
    api.close();
  }
}

if (process.argv[1]?.endsWith('answer-schemas.js') === true) {
  writeFileSync(schemaFile, `${JSON.stringify(answerSchemas(), null, 2)}\n`);
}
