// node-llama-cpp writes a grammar (GBNF) for a schema. Kvasir reads the grammar, as llama.cpp would.
import { getGbnfGrammarForGbnfJsonSchema } from './node_modules/node-llama-cpp/dist/utils/gbnfJson/getGbnfGrammarForGbnfJsonSchema.js';
import { answer } from './kvasir.mjs';

await answer((schema) => ({ grammar: getGbnfGrammarForGbnfJsonSchema(schema) }), '\n\n\n\n');
