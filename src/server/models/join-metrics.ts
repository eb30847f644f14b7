/** One metric of Prometheus' text format: the lines about it, and its samples. */
interface Family {
  readonly head: string[];
  readonly samples: string[];
}

/**
 * Joins the metrics of a server with those of its models. The samples of a metric must be together, so they are collected by name. Those of
 * a model have the label `model_name`. HTTP requests are counted by the server only, because all pass it.
 */
export function joinMetrics(
  own: string,
  ofModels: readonly { readonly model: string; readonly text: string }[],
): string {
  const families = new Map<string, Family>();
  collect(families, own, (sample) => sample);
  for (const { model, text } of ofModels)
    collect(families, text, (sample) => (sample.startsWith('http_') ? undefined : withModel(sample, model)));
  return Array.from(families.values())
    .filter(({ samples }) => samples.length > 0)
    .map(({ head, samples }) => `${[...head, ...samples].join('\n')}\n`)
    .join('\n');
}

function collect(families: Map<string, Family>, text: string, change: (sample: string) => string | undefined): void {
  let current: Family | undefined;
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const [, kind, name] = /^# (HELP|TYPE) (\S+)/.exec(line) ?? [];
    if (name !== undefined) {
      current = families.get(name) ?? { head: [], samples: [] };
      families.set(name, current);
      if (!current.head.some((other) => other.startsWith(`# ${kind} `))) current.head.push(line);
      continue;
    }
    const sample = change(line);
    if (sample !== undefined) current?.samples.push(sample);
  }
}

function withModel(sample: string, model: string): string {
  const [, name = '', labels] = /^([^{\s]+)(?:\{(.*)\})?/.exec(sample)!;
  if (labels?.includes('model_name="') === true) return sample;
  const label = `model_name="${model.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;
  const all = labels === undefined || labels === '' ? label : `${labels},${label}`;
  return `${name}{${all}}${sample.slice(sample.lastIndexOf(' '))}`;
}
