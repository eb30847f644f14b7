import { answer } from './kvasir.mjs';

await answer((schema) => ({ json: JSON.stringify(schema), strict: true }));
