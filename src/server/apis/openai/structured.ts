import { type FieldReader, snakeCase } from '../../../base/field-reader.ts';
import { type AskedStructure, readStructuredFields, readStructuredOutputs } from '../../../core/structured-outputs.ts';
import { fieldNotSupported } from '../../http/server-errors.ts';
import { schemaExpected } from './tools.ts';

/** Fields of older versions of vLLM. Ignoring them would give text that breaks the schema. */
const guided = ['json', 'regex', 'choice', 'grammar', 'json_object', 'decoding_backend', 'whitespace_pattern'];

/** `own`: in the place of `response_format`, from another API. Reads OpenAI's `response_format`, vLLM's `structured_outputs`, and llama-server's `grammar` and `json_schema`. A request has one of them. */
export function readStructure(reader: FieldReader, own?: AskedStructure): AskedStructure | undefined {
  for (const name of guided) {
    const detail = ': use `structured_outputs`, for example {"structured_outputs": {"json": <schema>}}';
    reader.refuse(`guided_${name}`, (value) => value === false, detail);
  }
  const asked = Object.entries(ways).map(([name, read]) => ({
    name,
    structure: own !== undefined && name === 'response_format' ? own : read(reader),
  }));
  const [first, second] = asked.filter(({ structure }) => structure !== undefined);
  if (second === undefined) return first?.structure;
  throw reader.invalid(second.name, `absent if \`${first!.name}\` is set`);
}

const ways: Readonly<Record<string, (reader: FieldReader) => AskedStructure | undefined>> = {
  response_format: readResponseFormat,
  structured_outputs: readOutputs,
  grammar: readGrammar,
  json_schema: readBareSchema,
};

/** As in llama-server, an empty text is no grammar. */
function readGrammar(reader: FieldReader): AskedStructure | undefined {
  const grammar = reader.string('grammar');
  if (grammar === undefined || grammar === '') return undefined;
  return { outputs: readStructuredOutputs({ grammar }, 'grammar'), parameter: 'grammar' };
}

function readBareSchema(reader: FieldReader): AskedStructure | undefined {
  const schema = reader.json('json_schema', schemaExpected);
  return schema && schemaStructure(schema, 'json_schema', undefined);
}

function readResponseFormat(reader: FieldReader): AskedStructure | undefined {
  const format = reader.object('response_format');
  if (format === undefined) return undefined;
  const type = format.required('type', format.name('type'), '"text", "json_object" or "json_schema"');
  if (type === 'json_schema') return readJsonSchema(format);
  if (type === 'structural_tag')
    throw fieldNotSupported({ parameter: 'response_format', detail: ' with type "structural_tag"' });
  if (type !== 'text' && type !== 'json_object') {
    throw format.invalid('type', '"text", "json_object" or "json_schema"');
  }
  // llama.cpp and others take a schema here too.
  const schema = type === 'json_object' ? format.json('schema', schemaExpected) : undefined;
  const strict = schema === undefined ? undefined : format.boolean('strict');
  format.finish();
  if (type === 'text') return undefined;
  if (schema !== undefined && Object.keys(schema).length > 0)
    return schemaStructure(schema, 'response_format.schema', strict);
  return { outputs: readStructuredOutputs({ jsonObject: true }), parameter: 'response_format' };
}

export const schemaStructure = (schema: object, parameter: string, strict: boolean | undefined): AskedStructure => ({
  outputs: readStructuredOutputs({ json: schema, ...(strict === undefined ? {} : { strict }) }, parameter),
  parameter,
});

/** llama.cpp takes the schema without the object around it too. */
function readJsonSchema(format: FieldReader): AskedStructure {
  const bare = format.json('schema', schemaExpected);
  if (bare !== undefined && format.raw('json_schema') === undefined) {
    format.ignore(['name', 'description']);
    const strict = format.boolean('strict');
    format.finish();
    return schemaStructure(bare, 'response_format.schema', strict);
  }
  const described = format.required('json_schema', format.object('json_schema'), 'an object with name and schema');
  described.name('name');
  described.string('description');
  const strict = described.boolean('strict');
  const given = described.json('schema', schemaExpected) ?? described.json('json_schema', schemaExpected);
  const schema = described.required('schema', given, schemaExpected);
  described.finish();
  format.finish();
  return schemaStructure(schema, 'response_format.json_schema.schema', strict);
}

function readOutputs(body: FieldReader): AskedStructure | undefined {
  const parameter = 'structured_outputs';
  const reader = body.object(parameter);
  if (reader === undefined) return undefined;
  reader.refuse('structural_tag', () => false);
  // Objects have no members that their schema does not name, unless it says so.
  reader.boolean('disable_additional_properties');
  return { outputs: readStructuredFields(reader, snakeCase), parameter };
}
