export default {
  kvasir: {
    input: { target: './openapi.json' },
    output: { target: './orval-client.ts', client: 'fetch', baseUrl: process.env.KVASIR_ORIGIN },
  },
};
