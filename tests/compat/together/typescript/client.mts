// What the stories share: a client configured by the environment, as people do it, and patience.

import Together from 'together-ai';

export type Cluster = Together.Beta.Cluster;
export type CreateParams = Together.Beta.ClusterCreateParams;

export const REGION = 'us-central-8';
export const together = new Together();
export const clusters = together.beta.clusters;
export const args = process.argv.slice(2);

export function asked(name: string, more: Partial<CreateParams> = {}): CreateParams {
  return {
    cluster_name: name,
    region: REGION,
    gpu_type: 'H100_SXM',
    num_gpus: 8,
    billing_type: 'ON_DEMAND',
    cuda_version: '12.6',
    nvidia_driver_version: '560',
    ...more,
  };
}

export async function until<T>(look: () => Promise<T>, good: (seen: T) => boolean, what: string): Promise<T> {
  const ends = Date.now() + 60_000;
  for (;;) {
    const seen = await look();
    if (good(seen)) return seen;
    if (Date.now() > ends) throw new Error(`${what}: still ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export async function ready(id: string): Promise<Cluster> {
  return until(() => clusters.retrieve(id), (seen) => seen.status === 'Ready', 'ready');
}

export async function gone(look: () => Promise<unknown>): Promise<void> {
  const missing = (error: unknown) => {
    if (error instanceof Together.NotFoundError) return true;
    throw error;
  };
  await until(() => look().then(() => false, missing), Boolean, 'gone');
}
