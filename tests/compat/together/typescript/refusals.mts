// What the client throws for a refusal, and that the sentence reaches whoever reads it.

import assert from 'node:assert/strict';
import Together, { type APIError } from 'together-ai';
import { asked, clusters, together, REGION } from './client.mjs';

type Kind = new (...args: never[]) => APIError;

interface Told {
  error: { message: string; type: string; param: string | null; code: string };
}

async function refused(kind: Kind, call: () => Promise<unknown>): Promise<Told['error'] & { headers: Headers }> {
  const error: unknown = await call().then(
    () => assert.fail(`${kind.name} was not thrown`),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof kind)) throw error;
  const told = (error.error as Told).error;
  assert(told.message.endsWith('.') && error.message.includes(told.message), error.message);
  return { ...told, headers: error.headers as Headers };
}

const stranger = together.withOptions({ apiKey: 'mk-nobody-knows-this-one' });
const unknown = await refused(Together.AuthenticationError, () => stranger.beta.clusters.list());
assert.equal(unknown.code, 'unauthenticated');

const missing = '00000000-0000-4000-8000-000000000000';
const where = { cluster_id: missing, instance_id: missing };
for (const call of [
  () => clusters.retrieve(missing),
  () => clusters.update(missing, { num_gpus: 8 }),
  () => clusters.delete(missing),
  () => clusters.retrieve('a/b c?d'),
  () => clusters.storage.retrieve(missing),
  () => clusters.storage.update({ volume_id: missing, size_tib: 2 }),
  () => clusters.storage.delete(missing),
  () => clusters.remediations.list('-', { cluster_id: missing }),
  () => clusters.remediations.retrieve(missing, where),
  () => clusters.remediations.cancel(missing, where),
])
  assert.equal((await refused(Together.NotFoundError, call)).code, 'not_found');

const seven = await refused(Together.BadRequestError, () => clusters.create(asked('x', { num_gpus: 7 })));
assert.equal(seven.param, 'num_gpus');
const mars = await refused(Together.BadRequestError, () => clusters.create(asked('x', { region: 'mars' })));
assert(mars.message.includes(REGION), mars.message);

await clusters.create(asked('taken'));
const taken = await refused(Together.ConflictError, () => clusters.create(asked('taken', { num_gpus: 16 })));
assert.deepEqual([taken.param, taken.headers.get('x-should-retry')], ['cluster_name', 'false']);
const many = await refused(Together.ConflictError, () => clusters.create(asked('huge', { num_gpus: 8 * 4096 })));
assert.equal(many.headers.get('x-should-retry'), 'false');

const lonely = { region: REGION, size_tib: 1, volume_name: 'v', is_lifecycle_independent: false };
const bound = await refused(Together.UnprocessableEntityError, () => clusters.storage.create(lonely));
assert.deepEqual([bound.param, bound.code], ['is_lifecycle_independent', 'unsupported']);
