import { Counter, Gauge, type Registry } from 'prom-client';

/** A metric whose value is read when it is scraped. */
export interface Collected {
  readonly name: string;
  readonly help: string;
  /** One number, or a number for each set of labels. */
  read(): number | readonly Sample[];
}

export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

type Labels = readonly string[];

/** A total that never decreases. Its name ends with `_total`. */
export function addCounter(registry: Registry, collected: Collected, labelNames: Labels = []): void {
  new Counter({
    ...definitionOf(registry, collected, labelNames),
    collect() {
      this.reset();
      for (const { labels, value } of samplesOf(collected)) this.inc({ ...labels }, value);
    },
  });
}

export function addGauge(registry: Registry, collected: Collected, labelNames: Labels = []): void {
  new Gauge({
    ...definitionOf(registry, collected, labelNames),
    collect() {
      this.reset();
      for (const { labels, value } of samplesOf(collected)) this.set({ ...labels }, value);
    },
  });
}

const definitionOf = (registry: Registry, { name, help }: Collected, labelNames: Labels) => ({
  name,
  help,
  labelNames: [...labelNames],
  registers: [registry],
});

function samplesOf({ read }: Collected): readonly Sample[] {
  const values = read();
  return typeof values === 'number' ? [{ labels: {}, value: values }] : values;
}
