import { describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { mapMemory } from './map-memory.ts';

/** Page faults of this process so far. */
const faults = (): number => process.resourceUsage().minorPageFault;

const mebibyte = 2 ** 20;
const bytes = 64 * mebibyte;

describe(
  'memory that is mapped before its use',
  needs(process.platform === 'linux', 'only Linux maps memory ahead'),
  () => {
    it('needs no page fault for each page at its first use', async () => {
      const memory = new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);
      expect(await mapMemory(memory)).toBe(true);
      const before = faults();
      memory.fill(1);
      // Other threads of the process have page faults too.
      expect(faults() - before).toBeLessThan((0.5 * bytes) / 4096);
    });

    it('keeps its content', async () => {
      const memory = new Uint8Array(Buffer.allocUnsafeSlow(mebibyte).buffer);
      for (let at = 0; at < memory.length; at += 97) memory[at] = at % 251;
      expect(await mapMemory(memory.subarray(5_000, 900_000))).toBe(true);
      for (let at = 0; at < memory.length; at += 97) expect(memory[at]).toBe(at % 251);
    });

    it('of less than a page is left as it is', async () => {
      expect(await mapMemory(new Uint8Array(100))).toBe(true);
      expect(await mapMemory(new Uint8Array(0))).toBe(true);
    });
  },
);
