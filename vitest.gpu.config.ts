import { defineConfig } from 'vitest/config';

export default defineConfig({ test: { include: ['test/gpu/*.gpu.ts'], pool: 'forks', testTimeout: 600_000 } });
