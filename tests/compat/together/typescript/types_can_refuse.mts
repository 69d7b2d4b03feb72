// The reader of types, tried on itself: a value that is almost right is told apart.

import assert from 'node:assert/strict';
import { whole } from './types.mjs';

const volume = { volume_id: 'v', volume_name: 'n', size_tib: 1, status: 'bound' };
whole('ClusterStorage', volume);
const { volume_name: _, ...nameless } = volume;
assert.throws(() => whole('ClusterStorage', nameless), /volume_name is missing/);
assert.throws(() => whole('ClusterStorage', { ...volume, status: 'asleep' }), /status is declared .* "asleep"/);
assert.throws(() => whole('ClusterStorage', { ...volume, size_tib: '1' }), /size_tib is declared number/);
assert.throws(() => whole('ClusterStorage', { ...volume, volume_id: null }), /volume_id is declared string/);
assert.throws(() => whole('StorageListResponse', { volumes: [volume, nameless] }), /\[1\].volume_name is missing/);
assert.throws(() => whole('StorageListResponse', { volumes: volume }), /volumes is declared/);
assert.throws(() => whole('StorageDeleteResponse', { success: 'true' }), /success is declared boolean/);
