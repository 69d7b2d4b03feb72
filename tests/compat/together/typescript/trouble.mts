// Trouble on the wire, by name: a fault thrown at once, a fault outlived by asking again, answers that come too late.

import assert from 'node:assert/strict';
import Together from 'together-ai';
import { args, asked, clusters, together } from './client.mjs';

const [what, status] = args;
if (what === 'thrown') {
  const kind = status === '429' ? Together.RateLimitError : Together.InternalServerError;
  const hasty = together.withOptions({ maxRetries: 0 });
  await assert.rejects(hasty.beta.clusters.list(), (error) => error instanceof kind && error.status === Number(status));
} else {
  const options = what === 'late' ? { timeout: 1000 } : {};
  const made = await clusters.create(asked('once'), options);
  assert.deepEqual((await clusters.list()).clusters.map((cluster) => cluster.cluster_id), [made.cluster_id]);
}
