"""The get page's own sample (seed 004); only the id is a real one."""

import sys

from together import Together

client = Together()

cluster = client.beta.clusters.retrieve(sys.argv[1])
print(cluster)
