/**
 * The Dockerfile and the manifests for Kubernetes: hadolint, kubeconform with the published schemas (`.ci/install-kubeconform`), and
 * the arguments of the containers. docs/operations.md says what this does not show.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { zigVersion } from '../scripts/prebuild/zig.ts';
import { defaultCacheFolder } from '../src/base/cache-folder.ts';
import { needs } from './support/needs.ts';
import { runHere } from './support/run-here.ts';

const tools = join(defaultCacheFolder() ?? '', 'kubeconform-v0.7.0');
const folder = 'deploy/kubernetes';
const manifests = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.yaml'))
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
