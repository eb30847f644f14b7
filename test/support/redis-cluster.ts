/** A cluster of real Redis servers for tests: primaries without replicas, which share the slots. */
import { setTimeout as wait } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort, RedisServer } from './redis-server.ts';

const slots = 16_384;

export class RedisCluster {
  readonly nodes: readonly RedisServer[];

  private constructor(nodes: readonly RedisServer[]) {
    this.nodes = nodes;
  }

  /** A cluster without a node stays in use for the slots of the others. `more`: settings on the command lines of the servers. */
  static async start(count: number, more: readonly string[] = []): Promise<RedisCluster> {
    const nodes: RedisServer[] = [];
    for (let i = 0; i < count; i++) {
      const busPort = await freePort();
      const ofCluster = [
        '--cluster-enabled',
        'yes',
        '--cluster-port',
        `${busPort}`,
        '--cluster-require-full-coverage',
        'no',
      ];
      const settings = [...ofCluster, ...more];
      const node = await RedisServer.start(settings);
      nodes.push(node);
      const [first, last] = [i, i + 1].map((part) => Math.round((slots * part) / count)) as [number, number];
      await withClient(node, async (client) => {
        await client.call('CLUSTER', 'ADDSLOTSRANGE', first, last - 1);
        if (i > 0) await client.call('CLUSTER', 'MEET', '127.0.0.1', nodes[0]!.port, nodes[0]!.busPort!);
      });
      node.busPort = busPort;
    }
    const cluster = new RedisCluster(nodes);
    await cluster.ready();
    return cluster;
  }

  get url(): string {
    return `redis://${this.nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}?cluster=true`;
  }

  /** Resolves when each node knows that all slots are served. */
  async ready(): Promise<void> {
    for (const node of this.nodes) {
      await withClient(node, async (client) => {
        const isReady = async (): Promise<boolean> => {
          const info = String(await client.call('CLUSTER', 'INFO'));
          return info.includes('cluster_state:ok') && info.includes(`cluster_slots_assigned:${slots}`);
        };
        while (!(await isReady())) await wait(20);
      });
    }
  }

  /** From now on, as by default, the cluster refuses all commands while a node is missing. */
  async needAllSlots(): Promise<void> {
    for (const node of this.nodes)
      await withClient(node, async (client) => {
        await client.config('SET', 'cluster-require-full-coverage', 'yes');
      });
  }

  /** Resolves when the first node refuses commands. */
  async untilRefused(): Promise<void> {
    await withClient(this.nodes[0]!, async (client) => {
      while (!String(await client.call('CLUSTER', 'INFO')).includes('cluster_state:fail')) await wait(20);
    });
  }

  async stop(): Promise<void> {
    for (const node of this.nodes) await node.stop();
  }
}

export async function withClient(node: RedisServer, use: (client: Redis) => Promise<void>): Promise<void> {
  const client = new Redis(node.url);
  // A node that dies closes the connection.
  client.on('error', () => undefined);
  try {
    await use(client);
  } finally {
    client.disconnect();
  }
}
