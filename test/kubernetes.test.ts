/**
 * The Dockerfile and the manifests for Kubernetes: hadolint, kubeconform with the published schemas (`.ci/install-kubeconform`), and
 * the arguments of the containers. docs/operations.md says what this does not show.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { type ModelSizes, sizesOf, tableOf } from '../bench/model-sizes/model-sizes.ts';
import { popularModels } from '../bench/model-sizes/popular-models.ts';
import { zigVersion } from '../scripts/prebuild/zig.ts';
import { defaultCacheFolder } from '../src/base/cache-folder.ts';
import { buildCommand } from './support/cli-process.ts';
import { needs } from './support/needs.ts';
import { runHere } from './support/run-here.ts';

const tools = join(defaultCacheFolder() ?? '', 'kubeconform-v0.7.0');
const folder = 'deploy/kubernetes';
const manifests = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.yaml') && !name.endsWith('kustomization.yaml'))
  .map((name) => join(folder, name))
  .sort();
const dockerfile = readFileSync('Dockerfile', 'utf8');

/** Validates what it reads, or these files. */
function kubeconform(files: readonly string[], input = '') {
  const schemas = join(tools, 'schemas', '{{ .Group }}_{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json');
  const args = ['-strict', '-summary', '-output', 'json', '-schema-location', schemas, ...files];
  const { status, stdout } = spawnSync(join(tools, 'kubeconform'), args, { encoding: 'utf8', input });
  const { resources, summary } = JSON.parse(stdout) as {
    readonly resources: readonly { readonly msg: string }[];
    readonly summary: { readonly valid: number; readonly skipped: number };
  };
  return { status, messages: resources.map(({ msg }) => msg), ...summary };
}

describe('the manifests', () => {
  const hasTools = existsSync(join(tools, 'kubeconform'));
  const missing = 'no kubeconform with schemas: .ci/install-kubeconform';

  it('have only fields and values that the schemas allow', needs(hasTools, missing), () => {
    const documents = manifests.flatMap((path) => readFileSync(path, 'utf8').match(/^kind: /gm) ?? []);
    expect(documents.length).toBeGreaterThan(15);
    expect(kubeconform(manifests)).toMatchObject({
      status: 0,
      messages: [],
      valid: documents.length,
      skipped: 0,
    });
  });

  it('are refused with a wrong name, type or value of a field', needs(hasTools, missing), () => {
    const servers = readFileSync(join(folder, 'several/servers.yaml'), 'utf8');
    const gateway = readFileSync(join(folder, 'several/gateway.yaml'), 'utf8');
    const planted: readonly (readonly [string, string])[] = [
      [servers, servers.replace('maxUnavailable:', 'maxUnavailabl:')],
      [servers, servers.replace('periodSeconds: 5', 'periodSeconds: five')],
      [gateway, gateway.replace('failureMode: FailOpen', 'failureMode: Open')],
      [gateway, gateway.replace('gatewayClassName: istio', '')],
    ];
    for (const [before, text] of planted) {
      expect(text).not.toBe(before);
      expect(kubeconform(['-'], text).messages).toHaveLength(1);
    }
  });

  const servers = ['one-replica.yaml', 'several/servers.yaml'].map((name) => readFileSync(join(folder, name), 'utf8'));

  it('start the server with arguments that it takes', async () => {
    for (const text of servers) {
      const [, block = ''] = /registry\.example\/kvasir[\s\S]*? args:\n([\s\S]*?)\n +ports:/.exec(text) ?? [];
      const args = [...block.matchAll(/^ +- (.*)$/gm)].map(([, arg]) => arg!.replace('$(VALKEY_PASSWORD)', 'secret'));
      expect(args.slice(0, 2)).toEqual(['serve', 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0']);
      const [, , ...flags] = args.filter((arg) => !arg.startsWith('--kv-transfer-key-file'));
      // A wrong flag ends the command before it looks for the model.
      const { code, stderr } = await runHere(['serve', 'models/none.gguf', ...flags, '--host=127.0.0.1', '--port=0']);
      expect(code).toBe(1);
      expect(stderr).toMatch(/models\/none\.gguf/);
    }
  });

  it('give the server time to end, a user without rights, and no root file system to write', () => {
    const user = /^USER (\d+):\1$/m.exec(dockerfile)?.[1];
    for (const text of servers) {
      const seconds = (name: string): number => Number(new RegExp(`${name}(\\d+)`).exec(text)?.[1]);
      const needed = seconds('sleep:\n +seconds: ') + seconds('--shutdown-timeout=');
      expect(seconds('terminationGracePeriodSeconds: ')).toBeGreaterThan(needed + 5);
      for (const name of ['runAsUser', 'runAsGroup', 'fsGroup']) expect(text).toContain(`${name}: ${user}\n`);
      for (const line of ['runAsNonRoot: true', 'readOnlyRootFilesystem: true', 'drop: [ALL]'])
        expect(text).toContain(line);
    }
  });
});

interface Container {
  readonly args: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
}

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly template: {
      readonly spec: { readonly containers: readonly Container[]; readonly initContainers?: readonly Container[] };
    };
  };
}

describe('the components', () => {
  const kustomize = join(tools, 'kustomize');
  const hasTools = existsSync(kustomize) && existsSync(join(tools, 'kubeconform'));
  const missing = 'no kustomize with schemas: .ci/install-kubeconform';
  const overlays = realpathSync(mkdtempSync(join(tmpdir(), 'kvasir-overlays-')));
  afterAll(() => rmSync(overlays, { recursive: true }));

  /** The manifests of a folder with a kustomization. */
  function build(path: string) {
    const { status, stdout, stderr } = spawnSync(kustomize, ['build', path], { encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(status).toBe(0);
    const manifests = parseAllDocuments(stdout).map((document) => document.toJS() as Manifest);
    expect(kubeconform(['-'], stdout)).toMatchObject({ messages: [], valid: manifests.length, skipped: 0 });
    const isServer = ({ kind, metadata }: Manifest): boolean =>
      /^(Deployment|StatefulSet)$/.test(kind) && metadata.name === 'kvasir';
    const { template } = manifests.find(isServer)!.spec;
    return { manifests, ...template.spec };
  }

  /** An overlay of one server, or of several, with these components. */
  function overlay(base: string, components: readonly string[]): string {
    const path = mkdtempSync(join(overlays, 'overlay-'));
    const lines = [
      ...['resources:', `  - ${relative(path, realpathSync(base))}`],
      ...[
        'components:',
        ...components.map((name) => `  - ${relative(path, realpathSync(join(folder, 'components', name)))}`),
      ],
    ];
    writeFileSync(join(path, 'kustomization.yaml'), `${lines.join('\n')}\n`);
    return path;
  }

  const names = readdirSync(join(folder, 'components'));

  it.each(names)('%s fits one server, and several if it does not scale', needs(hasTools, missing), (name) => {
    for (const base of name === 'autoscaling' ? ['several'] : ['', 'several']) {
      const { containers } = build(overlay(join(folder, base), [name]));
      expect(containers[0]!.args[0]).toBe('serve');
    }
  });

  it(
    'give the token to the container that downloads, and no network to a server that needs none',
    needs(hasTools, missing),
    () => {
      const variables = (container: Container | undefined) => container?.env?.map(({ name }) => name) ?? [];
      const one = (name: string) => build(overlay(folder, [name]));
      expect(variables(one('hub-token').containers[0])).toEqual(['HF_TOKEN']);
      const pulled = one('pulled-before');
      expect(variables(pulled.containers[0])).toEqual(['HF_HUB_OFFLINE']);
      expect(variables(pulled.initContainers?.[0])).toEqual(['HF_TOKEN']);
      expect(pulled.initContainers?.[0]?.args).toEqual(['pull', pulled.containers[0]!.args[1]]);
      const mounted = one('mounted-model');
      expect(mounted.containers[0]!.args[1]).toBe('/model-files/model.gguf');
      expect(variables(mounted.containers[0])).toEqual(['HF_HUB_OFFLINE']);
    },
  );

  it('are in an overlay to copy', needs(hasTools, missing), () => {
    const { manifests } = build(join(folder, 'overlay'));
    expect(manifests.map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['StatefulSet', 'PodDisruptionBudget', 'PodMonitor', 'ScaledObject', 'InferencePool']),
    );
  });
});

describe('the Dockerfile', () => {
  const hadolint = join(tools, 'hadolint');

  it('has no finding of hadolint', needs(existsSync(hadolint), 'no hadolint: .ci/install-kubeconform'), () => {
    const { status, stdout, stderr } = spawnSync(hadolint, ['Dockerfile'], { encoding: 'utf8' });
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: '', stderr: '' });
  });

  it('has the compiler of the kernels that the package has', () => {
    expect(dockerfile).toContain(`ziglang==${zigVersion}\n`);
  });
});

describe('the sizes of common models', () => {
  const sizes = JSON.parse(readFileSync(join(folder, 'sizes.json'), 'utf8')) as readonly ModelSizes[];
  const work = mkdtempSync(join(tmpdir(), 'kvasir-sizes-'));
  beforeAll(buildCommand, 60_000);
  afterAll(() => rmSync(work, { recursive: true }));

  it('are those of all models, and the table of the guide has them', () => {
    expect(sizes.map(({ model }) => model)).toEqual(popularModels.map(({ name }) => name));
    expect(readFileSync('docs/operations.md', 'utf8')).toContain(`\n${tableOf(sizes)}\n`);
  });

  it.each([0, 3, 8])('are what `kvasir size` says now, for model %i', async (index) => {
    expect(await sizesOf(popularModels[index]!, work)).toEqual(sizes[index]);
  });
});
